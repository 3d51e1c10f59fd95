"""Names of files are UTF-8 here whatever the locale says: they go into records, ladders and pages, for others."""

from __future__ import annotations

import codecs
import sys

from benchmark.utils.errors import UserError


def refuse_other(name: str, what: str, mend: str) -> None:
    """A UserError where a name is not UTF-8, or the locale has Python read names as something else.

    `what` is called by the message, and `mend` what helps against bytes that are not UTF-8. Read as Latin-1 a folder
    would be another dataset, with runs of its own.

    >>> refuse_other("plain", "the name", "rename it")
    """
    if name.isascii():
        return
    if codecs.lookup(encoding := sys.getfilesystemencoding()).name != "utf-8":
        raise UserError(f"{what} is not ASCII, and by this locale Python reads names of files as {encoding}, not as "
                        "UTF-8; set PYTHONUTF8=1 and give the same command again")
    if name != name.encode(errors="replace").decode():
        raise UserError(f"{what} is not UTF-8{mend}")

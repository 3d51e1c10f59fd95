"""Texts of pages: file names of their rows, links to their headings, names of their regions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from unicodedata import category, normalize
from urllib.parse import quote

from reports.storage.paths import short

LONGEST = 100
"""Bytes of a name in the name of a file, which may hold two of them and an ending, 255 in all."""


def slug(name: str) -> str:
    """A name as a file name: letters and digits of any script, look-alikes as what they look like.

    >>> slug("margin[beta=0.6] · resnet50"), slug("recall@1"), slug("Vögel (鳥)"), slug("ｆｕｌｌ"), slug("_?")
    ('margin-beta-0.6-resnet50', 'recall-1', 'Vögel-鳥', 'full', 'unnamed')
    """
    # one form of every accent and width: a file system may change it and then not find what a link has
    kept = (c if c.isalnum() or c in "._" or category(c).startswith("M") else "-" for c in normalize("NFKC", name))
    return re.sub("-+", "-", "".join(kept)).rstrip("-.").lstrip("-._") or "unnamed"  # GitHub's Jekyll drops _pages


def slugs(names: Iterable[str]) -> dict[str, str]:
    """A file name for each name; those that would share one, on any file system, get a few letters of their hash.

    >>> slugs(["a:b", "a-b", "c"])
    {'a-b': 'a-b-d44362', 'a:b': 'a-b-6783a3', 'c': 'c'}
    >>> slugs(["Straße", "STRASSE"])
    {'STRASSE': 'STRASSE-b97805', 'Straße': 'Straße-58a377'}
    """
    taken: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        taken.setdefault(slug(name).casefold(), []).append(name)
    files = {name: short(slug(name), LONGEST) for same in taken.values() for name in same}
    return {name: files[name] if len(same) == 1 else hashed(files[name], name)
            for same in taken.values() for name in same}


def hashed(file: str, name: str) -> str:
    """A file name with a few letters that follow from the name it was made of."""
    return f"{file}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def with_quoted_links(page: str) -> str:
    """A page whose links are ASCII: a browser writes other letters so by itself, other programs may not.

    >>> with_quoted_links('<a href="dataset/鳥.html#map">鳥</a>')
    '<a href="dataset/%E9%B3%A5.html#map">鳥</a>'
    """
    return re.sub(r' (?:href|src)="[^"]*[^\x00-\x7f"][^"]*"',
                  lambda link: re.sub(r"[^\x00-\x7f]+", lambda letters: quote(letters[0]), link[0]), page)


def dense(page: str) -> str:
    r"""A page without the indents of its templates, which say nothing outside of what is preformatted.

    >>> dense("<ul>\n  <li>a\n\n</ul><pre>a\n  b</pre>")
    '<ul>\n<li>a\n</ul><pre>a\n  b</pre>'
    """
    parts = re.split(r"(<pre\b.*?</pre>)", page, flags=re.S)
    return "".join(part if part.startswith("<pre") else _dense(part) for part in parts)


def _dense(part: str) -> str:
    # what stands before the end of a line is cut off apart: an expression that begins with it tries every space
    *lines, last = re.sub(r"\n\s*", "\n", part).split("\n")
    return "\n".join([*(line.rstrip(" \t") for line in lines), last])


def with_permalinks(page: str) -> str:
    """A page whose headings of sections have an id each and a link to themselves, which a script-less reader has too.

    >>> with_permalinks("<h2>All runs</h2>")
    '<h2 id="all-runs">All runs<a class="permalink" href="#all-runs" aria-label="Link to All runs"></a></h2>'
    """
    taken = set(re.findall(r' id="([^"]*)"', page))

    def linked(found: re.Match[str]) -> str:
        attributes, inner = found[1], found[2]
        words = " ".join(re.sub(r"<[^>]*>", " ", inner).split())
        if "tab-title" in attributes or not words:
            return found[0]
        own = re.search(r' id="([^"]*)"', attributes)
        name = own[1] if own else slug(words).lower()
        count = 2
        while not own and name in taken:
            name, count = f"{slug(words).lower()}-{count}", count + 1
        taken.add(name)
        link = f'<a class="permalink" href="#{name}" aria-label="Link to {words}"></a>'
        return f'<h2{attributes}' + ("" if own else f' id="{name}"') + f">{inner}{link}</h2>"

    return re.sub(r"<h2([^>]*)>(.*?)</h2>", linked, page, flags=re.S)


def distinct_regions(page: str) -> str:
    """A page on which no two regions have one name: who goes from region to region hears which it is.

    >>> distinct_regions('<div role="region" aria-label="a"></div><div role="region" aria-label="a"></div>')
    '<div role="region" aria-label="a"></div><div role="region" aria-label="a, 2"></div>'
    """
    counts: dict[str, int] = {}

    def named(found: re.Match[str]) -> str:
        counts[found[2]] = counts.get(found[2], 0) + 1
        more = f", {counts[found[2]]}" if counts[found[2]] > 1 else ""
        return f'{found[1]}aria-label="{found[2]}{more}"'

    return re.sub(r'(<\w+\b[^>]* role="region"[^>]* )aria-label="([^"]*)"', named, page)

"""Texts of pages: file names of their rows, links to their headings, names of their regions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable


def slug(name: str) -> str:
    """A name as a file name.

    >>> slug("margin[beta=0.6] · resnet50"), slug("recall@1")
    ('margin-beta-0.6-resnet50', 'recall-1')
    """
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "unnamed"


def slugs(names: Iterable[str]) -> dict[str, str]:
    """A file name for each name; those that would share one, on any file system, get a few letters of their hash.

    >>> slugs(["a:b", "a-b", "c"])
    {'a-b': 'a-b-d44362', 'a:b': 'a-b-6783a3', 'c': 'c'}
    """
    taken: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        taken.setdefault(slug(name).lower(), []).append(name)
    return {name: slug(name) if len(same) == 1 else f"{slug(name)}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
            for same in taken.values() for name in same}


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

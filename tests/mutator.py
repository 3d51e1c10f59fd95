"""Damaged copies of sound files, from a seed: bytes turned, cut, doubled, and values replaced by odd ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

ODD_VALUES: list[Any] = [
    None, True, -1, 0, 2**63, 10**40, 1e308, float("inf"), float("nan"), "", "a", "\ud800", "a\0b", "../../x", "$x^",
    "=1",
    "\x1b[2J", "x" * 3000, [], {}, [[]], [None], {"": None}, ["a", 1], {"value": {}}, [[1, "a"]], "1e999", "-0.5", 1.5]
ODD_WORDS = [b"", b"\x00", b"\xff\xfe", b"nan", b"inf", b"-1", b"1e999", b"99999999999999999999", b"../..", b"/etc/x",
             b'"', b"'", b"[" * 3000, b"{", b"\\ud800", b"\n", b"\r", b",", b"\t", b"=", b"\xed\xa0\x80",
             b"x" * 140_000]


def damaged_bytes(raw: bytes, draw: random.Random) -> bytes:
    """One to three changes of a file's bytes."""
    for _ in range(draw.randint(1, 3)):
        at, length = draw.randrange(len(raw) + 1), draw.choice((1, 2, 8, 64))
        kind = draw.randrange(6)
        if kind == 0:
            raw = raw[:at]
        elif kind == 1:
            raw = raw[:at] + raw[at + length:]
        elif kind == 2:
            raw = raw[:at] + draw.choice(ODD_WORDS) + raw[at:]
        elif kind == 3:
            raw = raw[:at] + draw.choice(ODD_WORDS) + raw[at + length:]
        elif kind == 4 and at < len(raw):
            raw = raw[:at] + bytes([raw[at] ^ (1 << draw.randrange(8))]) + raw[at + 1:]
        else:
            raw = raw[:at] + raw[max(0, at - 4 * length):at] + raw[at:]
    return raw


def odd_json(content: Any, draw: random.Random) -> Any:
    """The content with one value, at a place drawn by the way, replaced by an odd one, taken away or doubled."""
    if isinstance(content, dict) and content and draw.random() < 0.9:
        key = draw.choice(sorted(content))
        changed = dict(content)
        if draw.random() < 0.1:
            del changed[key]
        else:
            changed[key] = odd_json(content[key], draw)
        return changed
    if isinstance(content, list) and content and draw.random() < 0.8:
        at = draw.randrange(len(content))
        return [*content[:at], odd_json(content[at], draw), *content[at + 1:]]
    return draw.choice(ODD_VALUES)


def damaged_json(raw: bytes, draw: random.Random) -> bytes:
    """A JSON file with an odd value, or with damaged bytes."""
    if draw.random() < 0.3:
        return damaged_bytes(raw, draw)
    return json.dumps(odd_json(json.loads(raw), draw)).encode()


def damaged_lines(raw: bytes, draw: random.Random) -> bytes:
    """JSON lines of which one is damaged."""
    lines = raw.split(b"\n")
    at = draw.randrange(len(lines) - 1)
    return b"\n".join([*lines[:at], damaged_json(lines[at], draw), *lines[at + 1:]])


FIELDS = {"name": (0, 100), "size": (124, 12), "kind": (156, 1), "link": (157, 100), "magic": (257, 8),
          "prefix": (345, 155)}
"""Where the head of a member of a tar file says what, and in how many bytes."""
ODD_FIELDS = [b"\xff" * 12, b"\xff" * 10 + b"\xfe\x00", b"\x80" + b"\xff" * 11, b"77777777777\0", b"-1",
              b"00000000000\0", b"../../../etc/x.png\0", b"/etc/x.png\0", b"\xff\xfe.png\0", b"a\nb.png\0",
              *(bytes([kind]) for kind in b"123567SLKxgX")]


def damaged_tar(raw: bytes, draw: random.Random) -> bytes:
    """A tar file with an odd field in a head whose checksum is right, so that it is believed, or with damaged bytes."""
    if draw.random() < 0.4:
        return damaged_bytes(raw, draw)
    heads = [at for at in range(0, len(raw), 512) if raw[at + 257:at + 262] == b"ustar"]
    changed = bytearray(raw)
    for head in draw.sample(heads, draw.randint(1, 2)):
        start, length = FIELDS[draw.choice(sorted(FIELDS))]
        odd = draw.choice(ODD_FIELDS)[:length]
        changed[head + start:head + start + len(odd)] = odd
        changed[head + 148:head + 156] = b" " * 8
        changed[head + 148:head + 156] = b"%06o\0 " % sum(changed[head:head + 512])
    return bytes(changed)


Damage = Callable[[bytes, random.Random], bytes]

"""What `glyphs.characters` chooses from matplotlib 3.11's fonts: comparing the drawings takes each process a second.

With other fonts or another renderer the drawings are compared; tests/test_glyphs.py holds this list against that.
"""

from __future__ import annotations

FONTS = "52a1bbe8790bfe49"
"""The first digits of `fonts_hash()`."""
RENDERER = 1
CHOSEN = {
    "latin": "41-5A 61-7A C6 D0 D8 DE-DF E6 F0 F8 FE 111 126-127 138 141-142 14A-14B 152-153 166-167 180-188 18A-19F "
             "1A2-1AE 1B1-1C2 1DD 1F6 21C-21D 221 224-225 234-241 243-245 24C-24D",
    "greek": "393-394 398 39B 39E 3A0 3A6 3A8-3A9 3B1-3B8 3BA-3BE 3C0-3C9",
    "cyrillic": "402 404 409-40B 40F 413-414 416-418 41A-41B 423-424 426-42F 431-434 436-438 43A-43D 43F 442 444 "
                "446-44F 452 454 459-45B 45F",
    "armenian": "531-554 556",
    "georgian": "10D0-10F0",
    "arrows": "2190-2199 219C-21AD 21AF",
    "math": "2200 2202-2203 2206-2208 220B 220F-2211 2213 2215 2217 2219-2220 2223 2227-222B 2238 223A-223B 2242-2243 "
            "2248 2250-2255 2261 2264-2265 2282-2283 2286-2287 228D-22A5 22C4",
    "shapes": "2502 2506 250A 250C 2510 2514 2518 251C 2524 252C 2534 253C 254E 2550-2573 25A0-25A2 25A4-25A9 "
              "25AC-25B3 25B6-25B7 25BA-25BD 25C0-25C1 25C4-25C7 25C9-25DB 25E0-25E5 25E7-25FC 25FF",
}
"""Code points in hexadecimal, runs by their ends."""


def chosen() -> dict[str, tuple[int, ...]]:
    """The code points of each family.

    >>> [chr(code) for code in chosen()["latin"][25:27]]
    ['Z', 'a']
    """
    runs = {family: [run.split("-") for run in text.split()] for family, text in CHOSEN.items()}
    return {family: tuple(code for run in each for code in range(int(run[0], 16), int(run[-1], 16) + 1))
            for family, each in runs.items()}

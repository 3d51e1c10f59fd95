"""The card of a submission: what its authors say of a method, read from TOML or YAML, and what may stand in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmark.utils.errors import UserError, near
from reports.safe_text import one_line, printable
from reports.storage.paths import plain_file

KEYS = {"method": "name of the method, letters, digits and . + - _", "paper": "title, or address of the paper",
        "code": "address of the code", "backbone": "network, as timm calls it where it can, such as resnet50",
        "pretraining_data": "what the backbone was pretrained on", "training_data": "what the method was trained on",
        "extra_data": "images or labels beside the training classes of each split, or none",
        "hardware": "what it was trained on", "contact": "whom to ask", "licence": "terms of the submitted files"}
"""The fields of a card; all are texts."""
LONGEST, LARGEST = 300, 65_536
"""Characters of a field; bytes of the file."""


def read(path: Path) -> dict[str, str]:
    """The card in a .toml, .yaml or .yml file; a UserError says which field is wrong."""
    try:
        if plain_file(path).stat().st_size > LARGEST:
            raise UserError(f"{path} has more than {LARGEST:,} bytes; a card is a dozen lines")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError:
        raise UserError(f"{path} is not UTF-8; save it so") from None
    return check(_parsed(path, text), str(path))


def _parsed(path: Path, text: str) -> Any:
    if path.suffix == ".toml":
        try:
            import tomllib
        except ImportError:
            import tomli as tomllib  # type: ignore[no-redef]
        parse: Any = tomllib.loads
    elif path.suffix in (".yaml", ".yml"):
        try:
            import yaml
        except ImportError:
            raise UserError("a card in YAML needs PyYAML: `pip install pyyaml`, or write it as TOML") from None
        parse = yaml.safe_load
    else:
        raise UserError(f"{path} is neither .toml nor .yaml; write the card as one of these")
    try:
        return parse(text)
    except Exception as error:  # either library has its own kinds of errors
        raise UserError(f"{path} is no {path.suffix[1:].upper()}: {one_line(str(error), 200)}") from None


def check(card: Any, where: str) -> dict[str, str]:
    """The card itself; a UserError where a field is unknown, missing, too long, or no plain text."""
    if not isinstance(card, dict):
        raise UserError(f"{where}: a card is a table of {', '.join(KEYS)}")
    for key, value in card.items():
        if key not in KEYS:
            raise UserError(f"{where}: unknown field '{one_line(str(key), 60)}'{near(str(key), KEYS)}; there are: "
                            f"{', '.join(KEYS)}")
        if not isinstance(value, str) or not value.strip() or len(value) > LONGEST:
            raise UserError(f"{where}: '{key}' must be a text of 1 to {LONGEST} characters ({KEYS[key]})")
        if value != printable(value) or "\n" in value or "\t" in value:
            raise UserError(f"{where}: '{key}' holds control characters or more than one line; write plain text")
        if re.match(r"\s*[a-z][a-z0-9+.-]*:", value, re.I) and not re.match(r"https?://|mailto:|[\w .-]+: ", value):
            raise UserError(f"{where}: '{key}' is an address of another kind than https://; give such a one")
    missing = [key for key in KEYS if key not in card]
    if missing:
        raise UserError(f"{where} lacks '{missing[0]}' ({KEYS[missing[0]]}); a card has all of {', '.join(KEYS)}")
    name(card["method"], f"{where}: 'method'")
    return {key: card[key] for key in KEYS}


def name(text: str, what: str = "the name") -> str:
    """The name of a submitted method; a UserError where it is no plain one or taken by a method of the suite."""
    import methods

    if not re.fullmatch(r"\w[\w.+-]*", text) or len(text.encode()) > 60 or text[-1] == ".":
        raise UserError(f"{what}: '{one_line(text, 60)}' is no name for a method: use letters, digits and . + - _, at "
                        "most 60 bytes (--name NAME)")
    if text.casefold() in {known.casefold() for known in methods.names()}:
        raise UserError(f"{what}: '{text}' is a method of this suite; give what you submit a name of its own "
                        "(--name NAME)")
    return text

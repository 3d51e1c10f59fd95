"""`csv:PATH`: any images, listed in a file with the columns path, label and, if wanted, split, domain and role."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

from benchmark.datasets import Dataset, DatasetIndex, known_split
from benchmark.datasets.folder import own_name
from benchmark.datasets.reading import NotThere, first_half, make_index, safe, text
from benchmark.utils.errors import UserError, misspelt
from reports.wording import counted

COLUMNS = {"path": None, "label": None, "split": ("train", "test"), "domain": None, "role": ("", "query", "gallery")}


def read(data: Path, rest: str) -> DatasetIndex:
    """Reads the list; paths are relative to the folder it lies in, or all absolute.

    Columns of other names are passed over. Without a split column the first half of the classes, by name and within
    each domain, is trained on. With a domain column a class is DOMAIN/LABEL, so that classes of two domains are never
    one; a domain has no '/'.
    """
    path = Path(rest).expanduser()
    if not rest or not path.is_file():
        raise NotThere(f"there is no file '{rest}'; give csv:PATH with a list of the columns {', '.join(COLUMNS)}")
    lines = [values for _, values in _lines(path)]
    root, images = _located(path, [line["path"] for line in lines])
    has = lines[0].keys() if lines else ()
    keys = [f"{line['domain']}/{line['label']}" if "domain" in has else line["label"] for line in lines]
    domain_of = {key: line["domain"] for key, line in zip(keys, lines)} if "domain" in has else {}
    roles = [line["role"] for line in lines] if "role" in has else None
    if "split" in has:
        train = {key for key, line in zip(keys, lines) if line["split"] == "train"}
        both = sorted(train & {key for key, line in zip(keys, lines) if line["split"] == "test"})
        if both:
            marks = [line["split"] for line in lines]
            known = known_split(marks.count("train"), marks.count("test"))
            raise UserError(f"{path}: class '{both[0]}' is on both sides ({counted(len(both), 'such class')})"
                            f"{known and f', as in {known}'}; the split is one of classes: give all images of a class "
                            "the same side")
        if not train or len(train) == len(set(keys)):
            raise UserError(f"{path}: all images are on one side; give some classes 'train' and others 'test'")
    else:
        ordered = {domain: sorted(k for k in set(keys) if domain_of.get(k, "") == domain)
                   for domain in sorted(set(domain_of.values())) or [""]}
        train = {key for classes in ordered.values() for key in first_half(classes)}
    misplaced = next((line for line, key in zip(lines, keys) if roles and line["role"] and key in train), None)
    if misplaced is not None:
        raise UserError(f"{path}: training image '{misplaced['path']}' has the role '{misplaced['role']}'; only test "
                        "images are query or gallery, leave it empty")
    return make_index(own_name(path.with_suffix("")), root, images, keys, where=path, train=train, roles=roles,
                      domains=[line["domain"] for line in lines] if "domain" in has else None)


def line_numbers(path: Path) -> dict[str, int]:
    """The line of the list that names each image."""
    lines = _lines(path)
    _, images = _located(path, [values["path"] for _, values in lines])
    return {safe(image, path): number for (number, _), image in zip(lines, images)}


def _located(path: Path, images: list[str]) -> tuple[Path, list[str]]:
    """The folder of a dataset and its images relative to that: the list's own or, where all are given by their absolute
    paths, the innermost folder around them.

    >>> _located(Path("/a/list.csv"), ["/b/x/1.jpg", "/b/y/2.jpg"])
    (PosixPath('/b'), ['x/1.jpg', 'y/2.jpg'])
    """
    absolute = [image for image in images if os.path.isabs(image)]
    if absolute and len(absolute) < len(images):
        raise UserError(f"{path}: some paths are absolute, such as {absolute[0]}, and some relative; write all of them "
                        "one way")
    if not absolute:
        return path.parent, images
    whole = [os.path.normpath(image) for image in images]
    root = os.path.commonpath([os.path.dirname(image) for image in whole])
    return Path(root), [os.path.relpath(image, root) for image in whole]


def _lines(path: Path) -> list[tuple[int, dict[str, str]]]:
    try:
        return _entries(path)
    except csv.Error as error:  # such as a field of more than 131,072 characters, from a quote that is never closed
        raise UserError(f"{path} cannot be read as CSV: {error}; is a quotation mark never closed?") from None


def _entries(path: Path) -> list[tuple[int, dict[str, str]]]:
    written = text(path, "csv:")
    head = written.partition("\n")[0]
    between = next((mark for mark in ";\t" if mark in head and "," not in head), ",")  # as spreadsheets write lists
    reader = csv.DictReader(io.StringIO(written, newline=""), skipinitialspace=True, restval="", delimiter=between)
    columns = [column.strip() for column in reader.fieldnames or ()]
    lacking = [name for name in COLUMNS if name not in columns]
    for column in columns:
        if column not in COLUMNS and (meant := misspelt(column, lacking)):
            raise UserError(f"{path} has the column '{column}' (did you mean '{meant}'?); correct the first line, or "
                            "give the column quite another name and it is passed over")
    if twice := [column for column in COLUMNS if columns.count(column) > 1]:
        raise UserError(f"{path} has the column '{twice[0]}' twice; take one out of it")
    if not {"path", "label"} <= set(columns):
        raise UserError(f"{path} lacks the columns path and label; its first line must name them")
    reader.fieldnames = columns
    entries = []
    for line in reader:
        if None in line:
            raise UserError(f"{path}, line {reader.line_num}: more fields than columns; put quotes around values "
                            "that contain a comma")
        values = {column: line[column].strip() for column in columns if column in COLUMNS}
        for column, value in values.items():
            allowed = COLUMNS[column]
            if value not in allowed if allowed else not value:
                meant = " or ".join(option or "empty" for option in allowed) if allowed else "given"
                raise UserError(f"{path}, line {reader.line_num}: {column} is '{value}'; it must be {meant}")
        if "/" in values.get("domain", ""):
            raise UserError(f"{path}, line {reader.line_num}: domain is '{values['domain']}'; it must have no '/', "
                            "which stands between domain and label in the name of a class")
        entries.append((reader.line_num, values))
    return entries


DATASETS = (Dataset(
    name="csv:",
    title="csv:PATH, your own images, listed in a file",
    read=read,
    source="Your own images.",
    tree="""\
PATH                               path,label,split,domain,role
                                   birds/1.jpg,jay,train,birds,
paths are relative to the list's folder, or all absolute; split is train or test, role query or gallery (test images
only); the last three columns may be left out, and others are passed over""",
),)

"""What a pinned ladder says of itself beside its file: a Croissant description (JSON-LD) and a card for readers."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from splits import pinning
from splits.pinning import Pinned

CONTEXT: dict[str, Any] = {
    "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/", "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/", "citeAs": "cr:citeAs", "column": "cr:column", "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"}, "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "equivalentProperty": "cr:equivalentProperty", "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract", "field": "cr:field",
    "fileProperty": "cr:fileProperty", "fileObject": "cr:fileObject", "fileSet": "cr:fileSet", "format": "cr:format",
    "includes": "cr:includes", "isLiveDataset": "cr:isLiveDataset", "jsonPath": "cr:jsonPath", "key": "cr:key",
    "md5": "cr:md5", "parentField": "cr:parentField", "path": "cr:path", "recordSet": "cr:recordSet",
    "references": "cr:references", "regex": "cr:regex", "repeated": "cr:repeated", "replace": "cr:replace",
    "samplingRate": "cr:samplingRate", "separator": "cr:separator", "source": "cr:source", "subField": "cr:subField",
    "transform": "cr:transform"}
CITE = ("@misc{oodml, title={oodml: a benchmark suite and leaderboard generator for deep metric learning under "
        "distribution shift}, year={2026}}")
RUNG = {"id": ("Integer", "Place of the rung on the ladder, 1 is the nearest."),
        "kind": ("Text", "How it was made: default, reverse, swap, removal, union or imported."),
        "train": ("Text", "Training classes as ranges of places in the list of classes, counted from 0."),
        "test": ("Text", "Test classes likewise."),
        "validation": ("Text", "Training classes that are held out to choose by, likewise."),
        "train_images": ("Integer", "Images of the training classes."),
        "test_images": ("Integer", "Images of the test classes."),
        "frd": ("Float", "Fréchet distance of the training to the test images."),
        "frd_class_means_released": ("Float", "The same over class means, as the script released with ooDML has it."),
        "frd_equal_n": ("Float", "The distance with as many images a side on every rung."),
        "queries": ("Text", "SHA-256 of the classes of the queries, in order.")}
OWN = re.compile(r"(folder|csv|parquet|wds):PATH")
CLASS = {"name": ("Text", "Name of the class."), "images": ("Integer", "Its images.")}


def description(pinned: Pinned, content: bytes) -> dict[str, Any]:
    """Croissant 1.0: the file of a pinned ladder, with its rungs and its classes as record sets."""
    file = f"{pinned.name}.json"
    # readers pass over nulls and lose count: a distance that some rung lacks is no field
    rung = {key: about for key, about in RUNG.items() if not any(getattr(s, key, "") is None for s in pinned.splits)}
    return {
        "@context": CONTEXT, "@type": "sc:Dataset", "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": pinned.name.replace("@", "-"), "alternateName": pinned.name, "description": summary(pinned),
        "version": "1.0.0", "datePublished": str(pinned.card.get("date", "")), "license": "https://opensource.org/license/mit",
        "usageInfo": str(pinned.card.get("licence", "")),
        "isBasedOn": str(pinned.card.get("source", "")), "citeAs": CITE,
        "creator": {"@type": "sc:Organization", "name": "oodml"},
        "keywords": ["deep metric learning", "distribution shift", "image retrieval", pinned.dataset],
        # readers take all fields of one file object for columns of one table: each record set has its own
        "distribution": [{"@type": "cr:FileObject", "@id": f"file-{part}", "name": f"file-{part}", "contentUrl": file,
                          "description": f"The {part} in the one file of the ladder: ids and numbers, no pixels.",
                          "encodingFormat": "application/json", "contentSize": f"{len(content)} B",
                          "sha256": hashlib.sha256(content).hexdigest()} for part in ("rungs", "classes")],
        "recordSet": [_records("rungs", "The splits from near to far.", "splits", rung),
                      _records("classes", "All classes of the dataset.", "classes", CLASS)]}


def _records(name: str, about: str, key: str, fields: dict[str, tuple[str, str]]) -> dict[str, Any]:
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "description": about, "field": [
        {"@type": "cr:Field", "@id": f"{name}/{field}", "name": field, "description": text, "dataType": f"sc:{kind}",
         "source": {"fileObject": {"@id": f"file-{name}"}, "extract": {"jsonPath": f"$.{key}[*].{field}"}}}
        for field, (kind, text) in fields.items()]}


def summary(pinned: Pinned) -> str:
    """One sentence on a pinned ladder."""
    far = [split.frd for split in pinned.splits if split.frd is not None]
    reach = f", Fréchet distance {min(far):.2f} to {max(far):.2f}" if far else ""
    rungs = "one split" if len(pinned.splits) == 1 else f"a ladder of {len(pinned.splits)} splits"
    beside = "".join(f"; beside these {member}, whose {classes:,} classes of {images:,} images are not named"
                     for member, (classes, images) in pinned.open.items())
    return (f"{rungs[0].upper()}{rungs[1:]} of {pinned.dataset} for deep metric learning under distribution shift: "
            f"{len(pinned.classes):,} classes, {sum(pinned.counts):,} images{reach}{beside}.")


def card(pinned: Pinned) -> str:
    """The card of a pinned ladder, in Markdown."""
    rows = [f"| {s.id} | {s.kind} | {len(s.train):,} | {s.train_images:,} | {len(s.test):,} | {s.test_images:,} | "
            f"{_number(s.frd)} | {_number(s.frd_class_means_released)} |" for s in pinned.splits]
    pairs = pinned.card.get("duplicates", [])
    said = "none with the same bytes" if pinned.images is not None else "not looked for: only class lists are pinned"
    if pairs:
        crossing = sum(len({_class(pinned, id) for id in group}) > 1 for group in pairs)
        said = (f"{len(pairs)} group{'s' * (len(pairs) != 1)} of images with the same bytes, {crossing} of them in "
                "more than one class:\n\n"
                + "\n".join(f"- {' = '.join(group)}" for group in pairs))
    how = [f"`{pinned.made['command']}`" if "command" in pinned.made else "not recorded"]
    if pinned.features:
        how.append(", ".join(f"{key} {value}" for key, value in sorted(pinned.features.items())))
    if pinned.iid:
        how.append(f"random halves of the same classes (i.i.d.): {pinned.iid['mean']:.2f} ± {pinned.iid['std']:.2f}")
    sizes = Counter(pinned.counts)
    each = "image" if pinned.images is not None else "class"
    given = pinned.name if pinned.name in pinning.names() else f"{pinned.name}.json"  # one's own by its file
    given += _copy(pinned)
    parts = [f"# {pinned.name}", summary(pinned), f"Hash `{pinned.hash}`. `oodml splits use {given}` checks "
             f"a local copy of the dataset against it, {each} by {each}.",
             "| split | kind | train classes | images | test classes | images | FRD | FRD of class means |\n"
             "|--:|---|--:|--:|--:|--:|--:|--:|\n" + "\n".join(rows),
             f"Images of a class: {min(sizes)} to {max(sizes)}." + (
                 "" if pinned.images is not None else " Image ids are not listed."),
             "How it was made: " + "; ".join(how) + ".", f"Source of the images: {pinned.card.get('source', '')}",
             f"Licence: {pinned.card.get('licence', '')} This file (names, numbers, hashes) is under the licence of "
             "oodml, MIT.", f"Known duplicates: {said}{'' if pairs else '.'}"]
    return "\n\n".join([*parts, *([str(pinned.card["note"])] if "note" in pinned.card else [])]) + "\n"


def _copy(pinned: Pinned) -> str:
    """The option that says where the local copy lies, of a dataset that no suite knows by name.

    Its title begins with how it is given, `folder:PATH`; a folder has to be called as the dataset.
    """
    own = OWN.match(str(pinned.card.get("title", "")))
    return f" --dataset {own[0]}{f'/{pinned.dataset}' if own[1] == 'folder' else ''}" if own else ""


def _class(pinned: Pinned, id: str) -> int:
    return next(i for i, ids in enumerate(pinned.images or ()) if id in ids)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def write(pinned: Pinned, folder: Path) -> list[Path]:
    """Writes NAME.croissant.jsonld and NAME.md beside the file of a pinned ladder."""
    content = (folder / f"{pinned.name}.json").read_bytes()
    texts = {".croissant.jsonld": json.dumps(description(pinned, content), indent=1, ensure_ascii=False) + "\n",
             ".md": card(pinned)}
    for ending, text in texts.items():
        (folder / f"{pinned.name}{ending}").write_text(text, encoding="utf-8")
    return [folder / f"{pinned.name}{ending}" for ending in texts]

"""Stanford Online Products: 22,634 products; the authors' lists name the classes to train on."""

from __future__ import annotations

from pathlib import Path

from benchmark.datasets import Counts, Dataset, DatasetIndex
from benchmark.datasets.reading import existing, find, make_index, numbers, rows
from benchmark.utils.errors import UserError

FOLDERS = ("Stanford_Online_Products", "online_products", "sop", "stanford-online-products")
TRAIN, TEST = "Ebay_train.txt", "Ebay_test.txt"


def read(data: Path) -> DatasetIndex:
    """Reads the two lists. A class is named by its product number, the file name up to the underscore."""
    root = find("sop", data, FOLDERS, (TRAIN, f"Info_Files/{TRAIN}", TEST, f"Info_Files/{TEST}", "images"))
    paths: list[str] = []
    keys: list[int] = []
    for name in (TRAIN, TEST):
        path = existing("sop", root, (name, f"Info_Files/{name}"))
        listed = [row for row in rows(path, 4, "sop") if row[0] != "image_id"]
        if not listed:
            raise UserError(f"{path} names no image; the list is cut, unpack it again")
        if name == TEST:
            train = set(keys)
        paths += [row[3] for row in listed]
        keys += numbers([row[1] for row in listed], path)
    both = train & set(keys[-len(listed):])
    if both:
        raise UserError(f"{path}: class {min(both)} is in {TRAIN} too; the lists are damaged, unpack them again")
    products = {key: path.rpartition("/")[2].partition("_")[0] for path, key in zip(reversed(paths), reversed(keys))}
    inner = (root / "images").is_dir() and not (root / paths[0]).parent.is_dir()
    return make_index("sop", root / "images" if inner else root, paths, keys, where=path, class_names=products,
                      train=train)


DATASETS = (Dataset(
    name="sop",
    title="Stanford Online Products, photographs of things for sale",
    read=read,
    folders=FOLDERS,
    source="Stanford_Online_Products.zip from the Lifted Structured Feature Embedding page of Stanford's computational "
           "vision and geometry lab.",
    tree="""\
DATA/Stanford_Online_Products/     also named online_products or sop
    Ebay_train.txt                 image_id class_id super_class_id path
    Ebay_test.txt                  (both lists may lie in Info_Files/)
    bicycle_final/*.JPG            the twelve folders may lie in images/""",
    counts=Counts(59551, 11318, 60502, 11316),
),)

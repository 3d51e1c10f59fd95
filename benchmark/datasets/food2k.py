"""Food2K: 2,000 categories of food; the first 1,000 by number are trained on."""

from __future__ import annotations

from pathlib import Path

from benchmark.datasets import Dataset, DatasetIndex
from benchmark.datasets.reading import class_folders, find, image_folder, make_index, numbers

FOLDERS = ("food2k", "Food2K", "food-2k", "food_2k", "Food2k_complete")
INNER = "Food2k_complete"


def read(data: Path) -> DatasetIndex:
    """Reads the folders of the categories, which are called by their number."""
    root = image_folder(find("food2k", data, FOLDERS, (INNER, "0", "1")), (INNER, "."))
    folders = class_folders(root)
    keys = dict(zip(folders, numbers(list(folders), root)))
    return make_index("food2k", root, [path for paths in folders.values() for path in paths],
                      [keys[name] for name, paths in folders.items() for _ in paths], where=root)


DATASETS = (Dataset(
    name="food2k",
    title="Food2K, categories of food",
    read=read,
    folders=FOLDERS,
    source="Food2k_complete.tar.gz, from the authors of 'Large Scale Visual Food Recognition' (Min et al.) on request.",
    tree="""\
DATA/food2k/
    Food2k_complete/0/*.jpg        one folder a category, 0 to 1999; the folders may lie in DATA/food2k itself""",
    size=(1036564, 2000),  # Min et al. 2023, abstract; the two halves are printed nowhere
),)

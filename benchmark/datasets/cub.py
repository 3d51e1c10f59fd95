"""CUB-200-2011: 200 species of birds; the first 100 classes by number are trained on."""

from __future__ import annotations

from pathlib import Path

from benchmark.datasets import Counts, Dataset, DatasetIndex
from benchmark.datasets.reading import class_folders, find, image_folder, make_index, read_numbered_lists

FOLDERS = ("CUB_200_2011", "cub200", "cub", "cub-200-2011", "cub200-2011", "cub_200")
LISTS = ("images.txt", "image_class_labels.txt", "classes.txt")


def read(data: Path) -> DatasetIndex:
    """Reads the three lists; a copy that has lost all of them is read from its numbered class folders."""
    root = find("cub", data, FOLDERS, (*LISTS, "images"))
    images = image_folder(root, ("images",))
    if any((root / name).exists() for name in LISTS):
        return read_numbered_lists("cub", root, images)
    folders = class_folders(images)
    return make_index("cub", images, [path for paths in folders.values() for path in paths],
                      [name for name, paths in folders.items() for _ in paths], where=images)


DATASETS = (Dataset(
    name="cub",
    title="CUB-200-2011, photographs of birds",
    read=read,
    folders=FOLDERS,
    source="CUB_200_2011.tgz from the Caltech-UCSD Birds-200-2011 page of Caltech's vision group, also kept by "
           "CaltechDATA. The older CUB-200 of 2010 (6,033 images) is another dataset.",
    tree="""\
DATA/CUB_200_2011/                 also named cub200 or cub, also with CUB_200_2011/ once more inside
    images.txt                     1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg
    image_class_labels.txt         1 1
    classes.txt                    1 001.Black_footed_Albatross
    images/001.Black_footed_Albatross/*.jpg
(or images/ alone, without any of the three lists)""",
    counts=Counts(5864, 100, 5924, 100),
    classification=(5994, 5794),
),)

"""NABirds: 555 visual categories of North American birds; the first 278 by number are trained on."""

from __future__ import annotations

from pathlib import Path

from benchmark.datasets import Counts, Dataset, DatasetIndex
from benchmark.datasets.reading import find, image_folder, read_numbered_lists

FOLDERS = ("nabirds", "nabird")


def read(data: Path) -> DatasetIndex:
    """Reads the three lists. Of the 1,011 nodes of classes.txt only those with images of their own are classes."""
    root = find("nabirds", data, FOLDERS, ("images.txt", "image_class_labels.txt", "images"))
    return read_numbered_lists("nabirds", root, image_folder(root, ("images",)))


DATASETS = (Dataset(
    name="nabirds",
    title="NABirds, birds",
    read=read,
    folders=FOLDERS,
    source="nabirds.tar.gz from the NABirds page of the Cornell Lab of Ornithology, after accepting its terms.",
    tree="""\
DATA/nabirds/
    images.txt                     0000139e-21dc-4d0c-bfe1-4cae3c85c829 0817/0000139e21dc4d0cbfe14cae3c85c829.jpg
    image_class_labels.txt         0000139e-21dc-4d0c-bfe1-4cae3c85c829 817
    classes.txt                    817 Oak Titmouse
    images/0817/*.jpg""",
    counts=Counts(22909, 278, 25653, 277),
    classification=(23929, 24633),
),)

"""Stanford Dogs: 120 breeds; the first 60 by number are trained on."""

from __future__ import annotations

from pathlib import Path

from benchmark.datasets import Counts, Dataset, DatasetIndex
from benchmark.datasets.reading import class_numbers, existing, find, image_folder, make_index, mat
from benchmark.utils.errors import UserError

FOLDERS = ("stanford_dogs", "dogs", "StanfordDogs", "stanford-dogs", "stanford-dogs-dataset")


def read(data: Path) -> DatasetIndex:
    """Reads file_list.mat. A class is named by its folder."""
    root = find("dogs", data, FOLDERS, ("file_list.mat", "lists/file_list.mat", "Images"))
    path = existing("dogs", root, ("file_list.mat", "lists/file_list.mat"))
    files, labels = mat(path, "file_list", "labels", name="dogs")
    if len(files) != len(labels):
        raise UserError(f"{path} has {len(files)} files but {len(labels)} labels; unpack it again")
    paths = [str(file) for file in files]
    keys = class_numbers(labels, path)
    return make_index("dogs", image_folder(root, ("Images", "images/Images", "images")), paths, keys, where=path,
                      class_names={key: path.partition("/")[0] for path, key in zip(paths, keys)})


DATASETS = (Dataset(
    name="dogs",
    title="Stanford Dogs, photographs of dogs",
    read=read,
    folders=FOLDERS,
    source="images.tar and lists.tar from the Stanford Dogs page of Stanford's vision lab.",
    tree="""\
DATA/stanford_dogs/                also named dogs
    file_list.mat                  file_list, labels; may lie in lists/
    Images/n02085620-Chihuahua/*.jpg""",
    counts=Counts(10651, 60, 9929, 60),
    classification=(12000, 8580),
),)

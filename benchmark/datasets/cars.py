"""Cars-196 (Stanford Cars): 196 models of cars; the first 98 by number are trained on.

torchvision's StanfordCars reads one of the layouts below and splits every class in two; metric learning splits
the classes, so the annotation files are read here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmark.datasets import Counts, Dataset, DatasetIndex
from benchmark.datasets.reading import class_folders, class_numbers, existing, find, make_index, mat, tree_hint
from benchmark.utils.errors import UserError

FOLDERS = ("cars196", "stanford_cars", "cars", "cars_196", "stanford-cars", "stanford-cars-dataset", "StanfordCars")
DEVKITS = ("devkit", "car_devkit/devkit", "car_devkit", ".")
ALL, LABELLED_TEST = "cars_annos.mat", "cars_test_annos_withlabels.mat"


def read(data: Path) -> DatasetIndex:
    """Reads cars_annos.mat, else the devkit's two annotation files, else class folders below images/.

    Some copies have cars_annos.mat beside the devkit's images: without car_ims/ the devkit comes first.
    """
    devkits = tuple(f"{kit}/cars_train_annos.mat" for kit in DEVKITS)
    root = find("cars", data, FOLDERS, (ALL, *devkits, "car_ims", "cars_train", "images"))
    devkit = any((root / kit).exists() for kit in devkits)
    if (root / ALL).exists() and (not devkit or (root / "car_ims").is_dir()):
        return _read_one_file(root)
    if not devkit and (root / "images").is_dir():
        folders = class_folders(root / "images")
        return make_index("cars", root / "images", [path for paths in folders.values() for path in paths],
                          [name for name, paths in folders.items() for _ in paths], where=root / "images")
    if not devkit and not (root / "cars_train").is_dir():
        raise UserError(f"{root / ALL} is missing; {tree_hint('cars')}")
    return _read_devkit(root, existing("cars", root, devkits))


def _column(annotations: Any, field: str, path: Path) -> list[Any]:
    if annotations.dtype.names is None or field not in annotations.dtype.names:
        raise UserError(f"{path} has no field '{field}' in its annotations; it is not the labelled official file "
                        f"({tree_hint('cars')})")
    if field == "class":
        return class_numbers(annotations[field], path)
    return [str(np.asarray(value).item() if np.asarray(value).size == 1 else "") for value in annotations[field]]


def _read_one_file(root: Path) -> DatasetIndex:
    annotations, names = mat(root / ALL, "annotations", "class_names", name="cars")
    return make_index("cars", root, _column(annotations, "relative_im_path", root / ALL),
                      _column(annotations, "class", root / ALL), where=root / ALL,
                      class_names=dict(enumerate(map(str, names), 1)))


def _read_devkit(root: Path, train_file: Path) -> DatasetIndex:
    kit = train_file.parent
    beside = existing("cars", root, (LABELLED_TEST, *(f"{k}/{LABELLED_TEST}" for k in DEVKITS)))
    (names,) = mat(kit / "cars_meta.mat", "class_names", name="cars")
    paths: list[str] = []
    keys: list[int] = []
    for file, folder in ((train_file, "cars_train"), (beside, "cars_test")):
        (annotations,) = mat(file, "annotations", name="cars")
        # one well-known copy of the archive has each image folder once more inside itself
        folder = f"{folder}/{folder}" if (root / folder / folder).is_dir() else folder
        paths += [f"{folder}/{image}" for image in _column(annotations, "fname", file)]
        keys += _column(annotations, "class", file)
    return make_index("cars", root, paths, keys, where=train_file,
                      class_names=dict(enumerate(map(str, names), 1)))


DATASETS = (Dataset(
    name="cars",
    title="Cars-196, photographs of cars",
    read=read,
    folders=FOLDERS,
    source="The Stanford Cars page of Jonathan Krause named car_ims.tgz with cars_annos.mat, and cars_train.tgz, "
           "cars_test.tgz, car_devkit.tgz with cars_test_annos_withlabels.mat. Its links are dead; copies of either "
           "set are kept on dataset hubs under the name Stanford Cars.",
    tree="""\
DATA/cars196/                      also named stanford_cars or cars
    cars_annos.mat                 annotations (relative_im_path, class, ...), class_names
    car_ims/000001.jpg ...
or
DATA/stanford_cars/
    devkit/cars_meta.mat           class_names; the devkit may be named car_devkit/devkit
    devkit/cars_train_annos.mat    annotations (fname, class, ...)
    cars_test_annos_withlabels.mat here or in devkit/
    cars_train/00001.jpg ...
    cars_test/00001.jpg ...
or
DATA/cars196/images/AM General Hummer SUV 2000/*.jpg""",
    counts=Counts(8054, 98, 8131, 98),
    classification=(8144, 8041),
),)

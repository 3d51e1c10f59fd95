"""Writes each official layout in miniature, or its annotation files alone at any size.

Every writer takes the folder of the dataset and the number of images of each class in class order, shuffles the lines
of its lists, and draws the images unless told not to. It gives back {image path: class name}.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.io import savemat

SMALL = (3, 2, 2, 4)
CAR_NAMES = ("AM General Hummer SUV 2000", "Ram C/V Cargo Van Minivan 2012", "Eagle Talon Hatchback 1998",
             "FIAT 500 Abarth 2012")
Truth = dict[str, str]


def spread(total: int, parts: int) -> list[int]:
    """`total` in `parts` sizes that differ, none below 2."""
    sizes = [total // parts] * parts
    for i in range(parts // 2):
        move = i % max(1, total // parts - 2)
        sizes[i] += move
        sizes[-1 - i] -= move
    sizes[0] += total - sum(sizes)
    return sizes


def picture(path: Path, seed: object, mode: str = "RGB", size: tuple[int, int] = (24, 18), **options: Any) -> Path:
    """A real image file whose pixels depend on the seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    depth = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(list(str(seed).encode())).integers(0, 256, (size[1], size[0], depth), dtype=np.uint8)
    Image.fromarray(pixels.squeeze(), mode).save(path, **options)
    return path


def snap(text: str, path: Path) -> Path:
    """A text file of just this content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def litter(folder: Path) -> None:
    """What macOS leaves behind when an archive is unpacked."""
    for image in sorted(folder.rglob("*.[jJ][pP][gG]")):
        image.with_name("._" + image.name).write_bytes(b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X")
    (folder / ".DS_Store").write_bytes(b"\x00\x00\x00\x01Bud1")


def _draw(root: Path, truth: Truth, draw: bool) -> Truth:
    if draw:
        for path in truth:
            picture(root / path, path)
    return truth


def _write(path: Path, lines: Sequence[str], header: Sequence[str] = (), shuffle: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = list(lines)
    if shuffle:
        random.Random(path.name).shuffle(lines)
    path.write_text("\n".join([*header, *lines]) + "\n", encoding="utf-8")


def cub(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True) -> Truth:
    names = [f"{number:03d}.Bird_{number % 7}_{number}" for number in range(1, len(sizes) + 1)]
    images = [(number, f"{name}/{name}_{i:04d}.jpg") for number, (name, size) in enumerate(zip(names, sizes), 1)
              for i in range(size)]
    _write(place / "images.txt", [f"{i} {path}" for i, (_, path) in enumerate(images, 1)])
    _write(place / "image_class_labels.txt", [f"{i} {number}" for i, (number, _) in enumerate(images, 1)])
    _write(place / "classes.txt", [f"{number} {name}" for number, name in enumerate(names, 1)])
    _write(place / "train_test_split.txt", [f"{i} {i % 2}" for i, _ in enumerate(images, 1)])
    return _draw(place / "images", {path: names[number - 1] for number, path in images}, draw)


def nabirds(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True) -> Truth:
    """Class numbers have gaps; the tree's inner nodes have names but no images; names have spaces and brackets."""
    used = [295 + i + i // 4 for i in range(len(sizes))]
    names = {number: f"Bird {number} (Adult male)" for number in used}
    images = [(number, f"{number:04d}/{number:06d}ab{i:04d}.jpg", f"{number:06d}ab-{i:04d}")
              for number, size in zip(used, sizes) for i in range(size)]
    _write(place / "images.txt", [f"{key} {path}" for _, path, key in images])
    _write(place / "image_class_labels.txt", [f"{key} {number}" for number, _, key in images])
    _write(place / "classes.txt", ["0 Birds", "1 Ducks, Geese, and Swans",
                                   *(f"{number} {name}" for number, name in names.items())])
    _write(place / "hierarchy.txt", [f"{number} 1" for number in used])
    return _draw(place / "images", {path: names[number] for number, path, _ in images}, draw)


def _structs(columns: dict[str, Sequence[object]]) -> np.ndarray:
    length = len(next(iter(columns.values())))
    array = np.empty((1, length), dtype=[(name, object) for name in columns])
    for name, values in columns.items():
        for i, value in enumerate(values):
            array[0, i][name] = value
    return array


def _cells(texts: Sequence[str], column: bool = False) -> np.ndarray:
    cells = np.empty((len(texts), 1) if column else (1, len(texts)), dtype=object)
    cells.flat[:] = list(texts)
    return cells


def _boxes(count: int) -> dict[str, Sequence[object]]:
    return {f"bbox_{side}": [np.uint16(1)] * count for side in ("x1", "y1", "x2", "y2")}


def _car_names(count: int) -> list[str]:
    return [CAR_NAMES[i] if i < len(CAR_NAMES) else f"Car {i} Coupe 2012" for i in range(count)]


def cars(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True, names: Sequence[str] = ()) -> Truth:
    """car_ims and one annotation file for all."""
    names = names or _car_names(len(sizes))
    numbers = [number for number, size in enumerate(sizes, 1) for _ in range(size)]
    random.Random(0).shuffle(numbers)
    paths = [f"car_ims/{i:06d}.jpg" for i in range(1, len(numbers) + 1)]
    place.mkdir(parents=True, exist_ok=True)
    savemat(place / "cars_annos.mat", {
        "annotations": _structs({"relative_im_path": paths, **(_boxes(len(paths)) if draw else {}),
                                 "class": [np.uint8(n) for n in numbers], "test": [np.uint8(0)] * len(paths)}),
        "class_names": _cells(names)})
    return _draw(place, {path: names[number - 1] for path, number in zip(paths, numbers)}, draw)


def cars_devkit(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True, kit: str = "devkit",
                labels_in: str = ".", nested: bool = False) -> Truth:
    """cars_train, cars_test and the devkit, as torchvision has them or with the folders of other copies."""
    names = _car_names(len(sizes))
    (place / kit).mkdir(parents=True, exist_ok=True)
    savemat(place / kit / "cars_meta.mat", {"class_names": _cells(names)})
    truth: Truth = {}
    for side, file in (("train", place / kit / "cars_train_annos.mat"),
                       ("test", place / labels_in / "cars_test_annos_withlabels.mat")):
        numbers = [number for number, size in enumerate(sizes, 1) for i in range(size) if i % 2 == (side == "test")]
        random.Random(side).shuffle(numbers)
        files = [f"{i:05d}.jpg" for i in range(1, len(numbers) + 1)]
        savemat(file, {"annotations": _structs({**_boxes(len(files)), "class": [np.uint8(n) for n in numbers],
                                                "fname": files})})
        folder = f"cars_{side}/cars_{side}" if nested else f"cars_{side}"
        truth |= {f"{folder}/{name}": names[number - 1] for name, number in zip(files, numbers)}
    return _draw(place, truth, draw)


def sop(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True, train: int | None = None,
        authors: bool = False) -> Truth:
    """The two lists with their header and upper-case suffixes; `authors`: images/ and Info_Files/."""
    train = (len(sizes) + 1) // 2 if train is None else train
    images = [(number, f"{'toaster' if number % 2 else 'bicycle'}_final/{111085122871 + 37 * number}_{i}.JPG")
              for number, size in enumerate(sizes, 1) for i in range(size)]
    for name, side in (("train", True), ("test", False)):
        _write(place / ("Info_Files" if authors else ".") / f"Ebay_{name}.txt",
               [f"{i} {number} {number % 2 + 1} {path}" for i, (number, path) in enumerate(images, 1)
                if (number <= train) == side], ["image_id class_id super_class_id path"])
    truth = {path: path.split("/")[1].split("_")[0] for _, path in images}
    return _draw(place / "images" if authors else place, truth, draw)


def inshop(place: Path, train: Sequence[int] = (3, 2), test: Sequence[int] = (3, 4), queries: int | None = None,
           draw: bool = True, list_in: str = "Eval", images_in: str = "Img") -> Truth:
    """The partition list: its count, its header, columns filled up with blanks. Garments alternate between sides."""
    truth: Truth = {}
    lines: list[str] = []
    more = (queries or len(test)) - len(test)
    sides = [("test", size) for size in test] + [("train", size) for size in train]
    random.Random(1).shuffle(sides)
    for number, (side, size) in enumerate(sides, 1):
        for i in range(size):
            path = f"img/WOMEN/Blouses_Shirts/id_{number:08d}/{i:02d}_1_front.jpg"
            query = side == "test" and (i == 0 or (more > 0 and i < size - 1))
            more -= query and i > 0
            status = "train" if side == "train" else "query" if query else "gallery"
            truth[path] = f"id_{number:08d}"
            lines.append(f"{path:<70} id_{number:08d} {status}")
    _write(place / list_in / "list_eval_partition.txt", lines,
           [str(len(lines)), f"{'image_name':<70} item_id evaluation_status"])
    return _draw(place / images_in, truth, draw)


def dogs(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True, lists_in: str = ".") -> Truth:
    names = [f"n{2085620 + 9 * i:08d}-Dog_{i}" for i in range(len(sizes))]
    images = [(number, f"{name}/{name.split('-')[0]}_{i}.jpg")
              for number, (name, size) in enumerate(zip(names, sizes), 1) for i in range(size)]
    random.Random(2).shuffle(images)
    (place / lists_in).mkdir(parents=True, exist_ok=True)
    savemat(place / lists_in / "file_list.mat", {
        "file_list": _cells([path for _, path in images], column=True),
        "labels": np.array([[number] for number, _ in images], dtype=np.uint8)})
    return _draw(place / "Images", {path: names[number - 1] for number, path in images}, draw)


def flowers(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True) -> Truth:
    """The class name here is the number alone: the archive has no names."""
    numbers = [number for number, size in enumerate(sizes, 1) for _ in range(size)]
    random.Random(3).shuffle(numbers)
    place.mkdir(parents=True, exist_ok=True)
    savemat(place / "imagelabels.mat", {"labels": np.array([numbers], dtype=np.uint8)})
    savemat(place / "setid.mat", {"trnid": np.array([[1]]), "valid": np.array([[2]]), "tstid": np.array([[3]])})
    return _draw(place / "jpg", {f"image_{i:05d}.jpg": f"{n:03d}" for i, n in enumerate(numbers, 1)}, draw)


def aircraft(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True, separate: bool = False) -> Truth:
    """Variant names with spaces and slashes; `separate`: train and val in a list each."""
    known = ["707-320", "Boeing 717", "Cessna 525", "F/A-18"]
    names = [known[i] if i < len(known) else f"Z {i:03d}" for i in range(len(sizes))]
    images = [(f"{1000000 + 37 * number + 7919 * i}", name) for number, (name, size) in enumerate(zip(names, sizes))
              for i in range(size)]
    lists = ("train", "val", "test") if separate else ("trainval", "trainval", "test")
    lines: dict[str, list[str]] = {name: [] for name in lists}
    for i, (image, name) in enumerate(images):
        lines[lists[i % 3]].append(f"{image} {name}")
    for name, found in lines.items():
        _write(place / "data" / f"images_variant_{name}.txt", found)
    _write(place / "data" / "variants.txt", names, shuffle=False)
    return _draw(place / "data" / "images", {f"{image}.jpg": name for image, name in images}, draw)


def inat(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True, lists_in: str = "Inat_dataset_splits") -> Truth:
    truth = {f"Aves/{10 * number}/{number}{i:03d}.jpg": f"Aves/{10 * number}" for number, size in enumerate(sizes, 1)
             for i in range(size)}
    half = {f"Aves/{10 * number}" for number in range(1, len(sizes) // 2 + 1)}
    for side in ("train", "test"):
        _write(place / lists_in / f"Inaturalist_{side}_set1.txt",
               [f"train_val2018/{path}" for path, name in truth.items() if (name in half) == (side == "train")])
    return _draw(place / "train_val2018", truth, draw)


def pets(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True) -> Truth:
    names = [f"{'Cat' if number % 2 else 'big_dog'}_{number}" for number in range(1, len(sizes) + 1)]
    images = {f"{name}_{i + 1}": number for number, (name, size) in enumerate(zip(names, sizes), 1)
              for i in range(size)}
    _write(place / "annotations" / "list.txt", [f"{name} {number} 1 1" for name, number in images.items()],
           ["#Image CLASS-ID SPECIES BREED ID", "#ID: 1:37 Class ids", "#SPECIES: 1:Cat 2:Dog"])
    return _draw(place / "images", {f"{name}.jpg": names[number - 1] for name, number in images.items()}, draw)


def food2k(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True, inner: str = "Food2k_complete") -> Truth:
    truth = {f"{number}/{i}.jpg": str(number) for number, size in zip((0, 1, 2, 10), sizes) for i in range(size)}
    return _draw(place / inner, truth, draw)


def rp2k(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True, inner: str = "all") -> Truth:
    names = sorted(f"商品 {number}" for number in range(len(sizes)))
    truth = {f"{'test' if i == 0 else 'train'}/{name}/{i}.jpg": name for name, size in zip(names, sizes)
             for i in range(size)}
    return _draw(place / inner, truth, draw)


def met(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True, images: str = "images") -> Truth:
    """The last two exhibits have photographs of visitors, one of which is of no exhibit."""
    exhibits = {f"MET/{9 + number}/{i}.jpg": 9 + number for number, size in enumerate(sizes)
                for i in range(size - (number >= len(sizes) - 2))}
    photographs = {f"test_met/{number}.jpg": 9 + number for number in range(len(sizes) - 2, len(sizes))}
    base = [{"id": key, "path": path} for path, key in exhibits.items()]
    test = [{"path": path, "MET_id": key} for path, key in photographs.items()]
    snap(json.dumps(base), place / "ground_truth" / "MET_database.json")
    snap(json.dumps([{"path": "test_other/x.jpg"}, *test]), place / "ground_truth" / "testset.json")
    return _draw(place / images, {path: str(key) for path, key in (exhibits | photographs).items()}, draw)


def gldv2(place: Path, sizes: Sequence[int] = SMALL, draw: bool = True) -> Truth:
    images = {7 * number: [f"{number:x}{i:02x}f0" for i in range(size)] for number, size in enumerate(sizes, 1)}
    _write(place / "train_clean.csv", [f"{key},{' '.join(names)}" for key, names in images.items()],
           ["landmark_id,images"])
    truth = {f"{name[0]}/{name[1]}/{name[2]}/{name}.jpg": str(key) for key, names in images.items() for name in names}
    return _draw(place / "train", truth, draw)

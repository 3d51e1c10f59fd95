"""In-Shop Clothes Retrieval (DeepFashion): 7,982 garments; test images are either queries or gallery."""

from __future__ import annotations

from pathlib import Path

from benchmark.datasets import Counts, Dataset, DatasetIndex
from benchmark.datasets.reading import existing, find, make_index, numbers, rows
from benchmark.utils.errors import UserError

FOLDERS = ("inshop", "in-shop", "In-shop Clothes Retrieval Benchmark", "in_shop", "In-shop_Clothes_Retrieval_Benchmark",
           "deepfashion_inshop", "inshop_clothes")
LIST = "list_eval_partition.txt"
STATUSES = ("train", "query", "gallery")


def read(data: Path) -> DatasetIndex:
    """Reads the partition list: a count, a header, then image, garment and status. Every data line counts."""
    root = find("inshop", data, FOLDERS, (f"Eval/{LIST}", LIST, f"Anno/{LIST}", "Img", "img"))
    path = existing("inshop", root, (f"Eval/{LIST}", LIST, f"Anno/{LIST}"))
    lines = [row[0].split() for row in rows(path, 1, "inshop")]
    lines = [row for row in lines if not (len(row) == 1 and row[0].isdigit()) and row[0] != "image_name"]
    bad = next((row for row in lines if len(row) != 3 or row[2] not in STATUSES), None)
    if bad is not None:
        raise UserError(f"{path}: the line '{' '.join(bad)}' is not an image, a garment and one of "
                        f"{', '.join(STATUSES)}; the file is damaged, unpack it again")
    keys = numbers([row[1].removeprefix("id_") for row in lines], path)
    train = {key for key, row in zip(keys, lines) if row[2] == "train"}
    both = {key for key, row in zip(keys, lines) if row[2] != "train"} & train
    if both:
        raise UserError(f"{path}: id_{min(both):08d} is on both sides; the file is damaged, unpack it again")
    images = next((root / c for c in ("Img", ".") if (root / c / "img").is_dir()), root / "Img")
    return make_index("inshop", images, [row[0] for row in lines], keys, where=path, train=train,
                      class_names={key: row[1] for key, row in zip(keys, lines)},
                      roles=["" if row[2] == "train" else row[2] for row in lines])


DATASETS = (Dataset(
    name="inshop",
    title="In-Shop Clothes Retrieval",
    read=read,
    folders=FOLDERS,
    source="Eval/list_eval_partition.txt and Img/img.zip of the In-shop Clothes Retrieval Benchmark, from the "
           "DeepFashion page of the Multimedia Lab of the Chinese University of Hong Kong.",
    tree="""\
DATA/inshop/                       also named In-shop Clothes Retrieval Benchmark
    Eval/list_eval_partition.txt   52712, then the header image_name item_id evaluation_status, then the images
    Img/img/WOMEN/Dresses/id_00000002/*.jpg
(25,882 training images; 14,218 queries and 12,612 gallery images)""",
    counts=Counts(25882, 3997, 26830, 3985),
),)

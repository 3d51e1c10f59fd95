"""Google Landmarks v2, the clean training set: 81,313 landmarks; the first half by number is trained on.

The official test ranks 118,000 photographs, most of no landmark, against an index of 762,000; metric learning tests
landmarks that were not seen, so the labelled training set is split by landmark.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from benchmark.datasets import Dataset, DatasetIndex
from benchmark.datasets.reading import existing, find, image_folder, make_index, numbers, text
from benchmark.utils.errors import UserError

FOLDERS = ("gldv2", "google-landmark", "google-landmarks-v2", "google_landmarks_v2", "landmarks", "gld_v2")
LIST = "train_clean.csv"


def read(data: Path) -> DatasetIndex:
    """Reads train_clean.csv: a landmark and the names of its images; image abc... lies in train/a/b/c."""
    places = ("", "metadata/", "train/")
    root = find("gldv2", data, FOLDERS, [f"{place}{LIST}" for place in places])
    path = existing("gldv2", root, [f"{place}{LIST}" for place in places])
    try:
        lines = list(csv.DictReader(io.StringIO(text(path, "gldv2"), newline="")))
    except csv.Error as error:
        raise UserError(f"{path} cannot be read as CSV ({error}); fetch it again") from None
    if not lines or not {"landmark_id", "images"} <= lines[0].keys():
        raise UserError(f"{path} lacks the columns landmark_id and images; it is not the official file, "
                        "fetch it again")
    found = [(image, key) for line, key in zip(lines, numbers([line["landmark_id"] or "" for line in lines], path))
             for image in (line["images"] or "").split()]
    short = next((image for image, _ in found if len(image) < 3), None)
    if short is not None:
        raise UserError(f"{path}: '{short}' is no name of an image; the file is damaged, fetch it again")
    paths = [f"{image[0]}/{image[1]}/{image[2]}/{image}.jpg" for image, _ in found]
    return make_index("gldv2", image_folder(root, ("train", "images/train", "images")), paths,
                      [key for _, key in found], where=path)


DATASETS = (Dataset(
    name="gldv2",
    title="Google Landmarks v2, clean training set",
    read=read,
    folders=FOLDERS,
    source="images_000.tar to images_499.tar and train_clean.csv of the training set, from the google-landmark "
           "repository of the CVDF.",
    tree="""\
DATA/gldv2/                        also named google-landmark
    train_clean.csv                landmark_id,images: 1,17660ef415d37059 92b6290d571448f6 ...
    train/1/7/6/17660ef415d37059.jpg""",
    size=(1580470, 81313),  # README of the 2019 challenge's winners, who made it; DINOv2, table 15
),)

"""FGVC-Aircraft 2013b: 100 variants of aircraft; the first 50 by name are trained on.

torchvision's FGVCAircraft reads the same tree but splits every variant in two; metric learning splits the variants,
so the lists are read here. The copyright strip at the foot of each image is kept.
"""

from __future__ import annotations

from pathlib import Path

from benchmark.datasets import Counts, Dataset, DatasetIndex
from benchmark.datasets.reading import existing, find, make_index, rows

FOLDERS = ("fgvc-aircraft-2013b", "fgvc_aircraft", "aircraft", "fgvc-aircraft")
TEST = "images_variant_test.txt"


def read(data: Path) -> DatasetIndex:
    """Reads the lists of variants, whose names may hold spaces and slashes ('F/A-18')."""
    root = find("aircraft", data, FOLDERS, (f"data/{TEST}", TEST, "data/images", "images"))
    root = root / "data" if (root / "data").is_dir() else root
    lists = [existing("aircraft", root, ("images_variant_trainval.txt", "images_variant_train.txt")),
             root / "images_variant_test.txt"]
    if lists[0].name == "images_variant_train.txt":
        lists.insert(1, root / "images_variant_val.txt")
    listed = [row for path in lists for row in rows(path, 2, "aircraft")]
    return make_index("aircraft", root / "images", [f"{row[0]}.jpg" for row in listed], [row[1] for row in listed],
                      where=lists[0])


DATASETS = (Dataset(
    name="aircraft",
    title="FGVC-Aircraft 2013b, variants of aircraft",
    read=read,
    folders=FOLDERS,
    source="fgvc-aircraft-2013b.tar.gz from the FGVC-Aircraft page of Oxford's Visual Geometry Group; "
           "torchvision.datasets.FGVCAircraft('DATA', download=True) fetches and unpacks it.",
    tree="""\
DATA/fgvc-aircraft-2013b/          also named aircraft
    data/images_variant_trainval.txt   1025794 707-320
    data/images_variant_test.txt
    data/images/1025794.jpg ...""",
    counts=Counts(5000, 50, 5000, 50),
    classification=(6667, 3333),
),)

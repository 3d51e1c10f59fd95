"""iNaturalist 2018: 8,142 species, split for metric learning by Brown et al. (Smooth-AP, ECCV 2020)."""

from __future__ import annotations

from pathlib import Path

from benchmark.datasets import Counts, Dataset, DatasetIndex
from benchmark.datasets.reading import existing, find, make_index, numbers, rows
from benchmark.utils.errors import UserError

FOLDERS = ("inaturalist", "inaturalist2018", "inat2018", "inat", "inaturalist-2018", "inaturalist_2018", "inat18")
SPLITS = "Inat_dataset_splits"
TRAIN, TEST = "Inaturalist_train_set1.txt", "Inaturalist_test_set1.txt"


def read(data: Path) -> DatasetIndex:
    """Reads the two lists of paths; a class is the folder of a species, SUPER/NUMBER, and is ordered by its number."""
    marks = (TRAIN, f"{SPLITS}/{TRAIN}", TEST, f"{SPLITS}/{TEST}", "train_val2018")
    root = find("inat", data, FOLDERS, marks)
    paths: list[str] = []
    keys: list[int] = []
    sides = []
    for name in (TRAIN, TEST):
        path = existing("inat", root, (name, f"{SPLITS}/{name}"))
        # some copies of the lists have a folder of their authors' before the path
        listed = [row[0].split("/")[-3:] for row in rows(path, 1, "inat")]
        bad = next((parts for parts in listed if len(parts) < 3), None)
        if bad is not None:
            raise UserError(f"{path}: '{'/'.join(bad)}' is not SUPER/NUMBER/IMAGE; the file is damaged, unpack it "
                            "again")
        paths += ["/".join(parts) for parts in listed]
        sides.append(numbers([parts[1] for parts in listed], path))
        keys += sides[-1]
    both = set(sides[0]) & set(sides[1])
    if both:
        raise UserError(f"{path}: species {min(both)} is in {TRAIN} too; the lists are damaged, unpack them again")
    names = {key: path.rpartition("/")[0] for path, key in zip(paths, keys)}
    return make_index("inat", root / "train_val2018", paths, keys, where=path, class_names=names, train=set(sides[0]))


DATASETS = (Dataset(
    name="inat",
    title="iNaturalist 2018, species, in the metric-learning split of Brown et al.",
    read=read,
    folders=FOLDERS,
    source="train_val2018.tar.gz from the iNaturalist competition of 2018 (inat_comp of the visipedia group), and the "
           "lists Inat_dataset_splits of the Smooth-AP repository of Andrew Brown.",
    tree="""\
DATA/inaturalist/                  also named inat2018
    Inat_dataset_splits/Inaturalist_train_set1.txt   train_val2018/Aves/2761/d7c9a1d0.jpg
    Inat_dataset_splits/Inaturalist_test_set1.txt    (both lists may lie here)
    train_val2018/Aves/2761/*.jpg""",
    # images: test_inaturalist2018.py of pytorch-metric-learning; training classes: the configuration of SupRank, the
    # rest of 8,142 for the test. Classification: README of inat_comp, 2018.
    counts=Counts(325846, 5690, 136093, 2452),
    classification=(437513, 24426),
),)

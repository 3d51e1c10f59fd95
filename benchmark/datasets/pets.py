"""Oxford-IIIT Pets: 37 breeds of cats and dogs; the first 19 by number are trained on.

torchvision's OxfordIIITPet reads the same tree but splits every breed in two; metric learning splits the breeds and
uses all images of each.
"""

from __future__ import annotations

from pathlib import Path

from benchmark.datasets import Counts, Dataset, DatasetIndex
from benchmark.datasets.reading import existing, find, make_index, numbers, text
from benchmark.utils.errors import UserError

FOLDERS = ("oxford-iiit-pet", "oxford_iiit_pet", "oxford-pets", "oxford_pets", "pets", "Oxford-IIIT_Pets")


def read(data: Path) -> DatasetIndex:
    """Reads annotations/list.txt: image, breed, species and number within the species."""
    root = find("pets", data, FOLDERS, ("annotations/list.txt", "list.txt", "images"))
    path = existing("pets", root, ("annotations/list.txt", "list.txt"))
    rows = [line.split() for line in text(path, "pets").splitlines() if line.strip() and not line.startswith("#")]
    bad = next((row for row in rows if len(row) != 4 or "_" not in row[0]), None)
    if bad is not None or not rows:
        raise UserError(f"{path}: '{' '.join(bad or ())}' is not BREED_NUMBER and three numbers; the file is damaged, "
                        "unpack it again")
    keys = numbers([row[1] for row in rows], path)
    return make_index("pets", root / "images", [f"{row[0]}.jpg" for row in rows], keys, where=path,
                      class_names={key: row[0].rpartition("_")[0] for key, row in zip(keys, rows)})


DATASETS = (Dataset(
    name="pets",
    title="Oxford-IIIT Pets, breeds of cats and dogs",
    read=read,
    folders=FOLDERS,
    source="images.tar.gz and annotations.tar.gz from the Oxford-IIIT Pet page of Oxford's Visual Geometry Group; "
           "torchvision.datasets.OxfordIIITPet('DATA', download=True) fetches and unpacks them.",
    tree="""\
DATA/oxford-iiit-pet/              also named pets
    annotations/list.txt           Abyssinian_100 1 1 1
    images/Abyssinian_100.jpg ...""",
    # summed from the images of each breed as others counted them (Bombay 184, Egyptian Mau 190, ...; 7,349 in all, as
    # TensorFlow Datasets has it, which also has those of the classification split)
    counts=Counts(3766, 19, 3583, 18),
    classification=(3680, 3669),
),)

"""RP2K: retail products on shelves; the first half of the products, by the code points of their names, is trained on.

The archive splits the images of every product in two; metric learning splits the products and uses all images of each.
"""

from __future__ import annotations

from pathlib import Path

from benchmark.datasets import Dataset, DatasetIndex
from benchmark.datasets.reading import class_folders, find, image_folder, make_index
from benchmark.utils.errors import UserError

FOLDERS = ("rp2k", "RP2K", "RP2K_rp2k_dataset", "rp2k_dataset")


def read(data: Path) -> DatasetIndex:
    """Reads all/train/PRODUCT and all/test/PRODUCT."""
    root = image_folder(find("rp2k", data, FOLDERS, ("all/train", "all/test", "train", "test")), ("all", "."))
    sides = {side: class_folders(root / side) if (root / side).is_dir() else {} for side in ("train", "test")}
    absent = [side for side, folders in sides.items() if not folders]
    if absent:
        raise UserError(f"{root / absent[0]} has no folder with images; unpack the archive again")
    listed = [(f"{side}/{path}", name) for side, folders in sides.items() for name, paths in folders.items()
              for path in paths]
    return make_index("rp2k", root, [path for path, _ in listed], [name for _, name in listed], where=root)


DATASETS = (Dataset(
    name="rp2k",
    title="RP2K, retail products",
    read=read,
    folders=FOLDERS,
    source="The RP2K archive of Pinlan Data Technology (Peng et al., 'RP2K: A Large-Scale Retail Product Dataset'). "
           "The paper says 350,000 images of more than 2,000 products, an earlier version of it 500,000 of 2,000, and "
           "neither is exact, so that no numbers are checked.",
    tree="""\
DATA/rp2k/
    all/train/PRODUCT/*.jpg        the two folders may lie in DATA/rp2k itself
    all/test/PRODUCT/*.jpg""",
),)

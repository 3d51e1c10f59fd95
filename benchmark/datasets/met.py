"""The Met dataset: artworks of the Metropolitan Museum, photographed by the museum and by visitors.

Its test asks which of all 224,408 exhibits a visitor's photograph shows, so that every class is trained on. Metric
learning tests classes that were not seen: here the exhibits with test photographs are the test classes, these
photographs are the queries and the museum's images of the same exhibits are the gallery; all other exhibits are
trained on. Test photographs of no exhibit, which the official test adds, have no class and play no part.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmark.datasets import Dataset, DatasetIndex
from benchmark.datasets.reading import existing, find, image_folder, make_index, text
from benchmark.utils.errors import UserError

FOLDERS = ("met", "the-met-dataset", "met_dataset", "MET")
DATABASE, TEST = "MET_database.json", "testset.json"


def read(data: Path) -> DatasetIndex:
    """Reads the two lists of the ground truth."""
    places = ("ground_truth", ".", "GT")
    root = find("met", data, FOLDERS, [f"{place}/{DATABASE}" for place in places])
    base, test = (existing("met", root, [f"{place}/{name}" for place in places]) for name in (DATABASE, TEST))
    exhibits = [_entry(one, "id", base) for one in _list(base)]
    photographs = [_entry(one, "MET_id", test) for one in _list(test) if isinstance(one, dict) and "MET_id" in one]
    asked = {key for _, key in photographs}
    lost = asked - {key for _, key in exhibits}
    if lost:
        raise UserError(f"{test}: exhibit {min(lost)} is not in {base.name}; the lists do not belong together, unpack "
                        "them again")
    roles = ["gallery" if key in asked else "" for _, key in exhibits] + ["query"] * len(photographs)
    listed = [*exhibits, *photographs]
    return make_index("met", image_folder(root, ("images", ".")), [path for path, _ in listed],
                      [key for _, key in listed], where=base, roles=roles,
                      train={key for _, key in exhibits} - asked)


def _list(path: Path) -> list[Any]:
    try:
        content = json.loads(text(path, "met"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}); unpack it again") from None
    if not isinstance(content, list) or not content:
        raise UserError(f"{path} is no list of images; unpack it again")
    return content


def _entry(one: Any, key: str, path: Path) -> tuple[str, int]:
    try:
        return str(one["path"]), int(one[key])
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path}: {str(one)[:100]} has no path or no {key}; unpack it again") from None


DATASETS = (Dataset(
    name="met",
    title="The Met dataset, artworks; visitors' photographs against the museum's",
    read=read,
    folders=FOLDERS,
    source="MET.tar.gz, test_met.tar.gz and ground_truth.tar.gz from the page of the Met dataset (Ypsilantis et al.) "
           "of the Czech Technical University.",
    tree="""\
DATA/met/
    ground_truth/MET_database.json   [{"id": 1, "path": "MET/1/0.jpg"}, ...]
    ground_truth/testset.json        [{"path": "test_met/0.jpg", "MET_id": 1}, ...]
    images/MET/1/0.jpg               MET and test_met may lie in DATA/met itself
    images/test_met/0.jpg""",
    size=(397121 + 1003, 224408),  # its lists, as others counted them; 397,121 also in DINOv2, table 15
    ladder=False,
),)

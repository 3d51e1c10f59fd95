"""Whether a ladder was built of a dataset's files as they are now, or of others."""

from __future__ import annotations

from benchmark import datasets
from benchmark.data import contents
from benchmark.datasets import DatasetIndex
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from splits.manifest import Ladder


def namesake(ladder: Ladder, index: DatasetIndex, workspace: Workspace) -> str:
    """What is said of a ladder that was built of another dataset, which is still there; '' where it is of this one.

    Splits without distances fit all that have the same files by name, whatever these show.
    """
    source = datasets.built_of(str(ladder.made.get("command", "")))
    if ":" not in index.typed or ":" not in source or source == datasets.located(index.typed):
        return ""
    built, same = ladder.features.get("contents"), ladder.dataset_hash == index.hash
    if same and (not built or built == contents.contents(index, workspace.cache)):
        return ""
    try:
        datasets.load(source, workspace.data)
    except UserError:  # it was moved, or comes from another machine
        return ""
    return (f"is the ladder of {source}, which is named '{index.name}' as {index.typed} is; rename one of the two, or "
            "give each a working folder of its own (--work DIR)")


def of_other_images(ladder: Ladder, index: DatasetIndex, workspace: Workspace) -> str:
    """What to know of a ladder whose features are of other images than the files contain now; '' if they are not."""
    built = ladder.features.get("contents")
    if not built or built == contents.contents(index, workspace.cache):
        return ""
    return (f"the distances of the ladder of {index.typed} are of other images than its files contain now; `oodml "
            f"splits build --dataset {index.typed} --replace` builds it anew")

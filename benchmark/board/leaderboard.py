"""From the records of a working folder, or of packed ones, to the leaderboard."""

from __future__ import annotations

import glob
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from pandas.errors import OptionError

from benchmark import datasets as known_datasets
from benchmark.board.results import results_of
from benchmark.config import study
from benchmark.ladders import figures as ladder_figures
from benchmark.utils import leftovers
from benchmark.utils.workspace import Workspace
from reports import ReportError, records, site
from reports.analysis import study_progress, tuning
from reports.analysis.results import Results
from reports.figures.drawing import drawing
from reports.storage import paths
from splits import SplitError, manifest

# texts as plain objects: pandas 3 has an array of its own for them, and the same pages take a tenth longer with it
with suppress(OptionError):
    pd.set_option("future.infer_string", False)


@dataclass(frozen=True)
class Leaderboard:
    """Everything that the pages show, and where the ladders behind it may lie."""

    results: Results
    lost: pd.DataFrame
    """Runs without a result."""
    workspace: Workspace
    ladders: Sequence[Path]
    searches: Sequence[tuning.Search] = ()
    """What `oodml tune` left."""

    def build(self, out: Path | None = None, url: str = "") -> Path:
        """Writes the pages, by default into the working folder, and returns their `index.html`; see `site.build`."""
        leftovers.remove([out or self.workspace.leaderboard])
        with TemporaryDirectory() as figures:
            self._draw(Path(figures))
            return site.build(self.results, self.lost, out or self.workspace.leaderboard, Path(figures),
                              study.filled_by(), self.searches, url, self._titles())

    def _titles(self) -> dict[str, str]:
        """What the images of each dataset are, of those that are known here; unions are called by their members."""
        known, found = known_datasets.names(), [*self.results.datasets, *self.results.unions]
        return {name: known_datasets.get(name).title if name in known else
                f"Union of {', '.join(self.results.parts[name])}"
                for name in found if name in known or name in self.results.unions}

    def _draw(self, out: Path) -> None:
        """Puts the figures of the ladders that the runs were made on into a folder: those there are, or drawn now."""
        for dataset in self.results.datasets:
            hashes = set(self.results.runs.loc[self.results.runs["dataset"] == dataset, "split_hash"])
            for home in self.ladders if paths.is_plain(dataset) else ():
                path = home / f"{dataset}.json"
                if not path.is_file() or not hashes <= _hashes(path):
                    continue
                with drawing(dataset):  # the same bytes each time
                    ladder_figures.draw(dataset, Workspace.at(home.parent), out, umap=False, seed=0)
                for made in home.glob(f"{glob.escape(dataset)}-*"):
                    if paths.is_own_file(home, made.name):  # a link could put any file of this machine on a page
                        shutil.copyfile(made, paths.below(out, made.name))
                break


def collect(workspace: Workspace, folders: Sequence[Path] = (), datasets: list[str] | None = None,
            published: str = "shown", ladders: Sequence[str] = (), level: str = "") -> Leaderboard:
    """What the working folder holds, or other folders of records; `published` rows are shown, ranked or hidden."""
    frame, lost = records.scan_checked(folders or (workspace.runs,), datasets)
    damaged: list[ReportError] = []
    studies = study_progress.read(folders or (workspace.root,), damaged)
    results = results_of(frame, studies, published=published, ladders=ladders, level=level)
    packed = [path for folder in folders for path in (folder / "splits", *sorted(folder.glob("*/splits")))]
    searches = tuning.read(folders or (workspace.root,), damaged)
    damaged += _damaged_ladders(packed or [workspace.splits], [*results.datasets, *results.unions])
    rows = pd.DataFrame([{"state": "damaged", "kind": "ReportError", "cause": str(error)} for error in damaged],
                        columns=lost.columns)
    return Leaderboard(results, pd.concat([lost, rows], ignore_index=True) if damaged else lost, workspace,
                       packed or [workspace.splits], searches)


def _damaged_ladders(homes: Sequence[Path], datasets: Sequence[str]) -> Iterator[ReportError]:
    """What is wrong with each manifest that cannot be read: its figures are missing, and a reader should know why."""
    for path in (home / f"{dataset}.json" for home in homes for dataset in datasets if paths.is_plain(dataset)):
        try:
            if path.exists():
                manifest.load(path)
        except SplitError as error:
            yield ReportError(f"ladder {path}: {error}" if str(path) not in str(error) else f"ladder: {error}")


def _hashes(path: Path) -> set[str]:
    """The hashes of the splits in a manifest; none where it is damaged, which is no reason to show no results."""
    try:
        ladder = manifest.load(path)
        return {split.hash for split in ladder.splits} if ladder.dataset == path.stem else set()
    except SplitError:
        return set()

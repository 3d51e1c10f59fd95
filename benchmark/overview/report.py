"""What a look at every image of a dataset found, in lines for the user."""

from __future__ import annotations

from dataclasses import dataclass, field

from reports.wording import counted

PUT_BACK = {"": "unpack the archive again", "csv": "put back what is missing or take its lines out of the list",
            "folder": "put back what is missing", "parquet": "fetch the shard again", "wds": "fetch the shard again",
            "union": "put back what is missing, or unpack the archive it comes from again"}
"""What mends a missing image, by the family of the dataset."""
NAMED = 5
"""Files or classes of one kind that a line names."""


@dataclass
class Report:
    """The findings; `problems` are lines for the user, each with what mends it. Without any the dataset is sound."""

    images: int
    family: str = ""
    """What leads the name of a dataset of one's own: csv, folder, parquet, union or wds."""
    missing: list[str] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    """Where the user's list names a missing image."""
    bare: list[str] = field(default_factory=list)
    """Folders of which not one listed image is there."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Path to cause."""
    extra: list[str] = field(default_factory=list)
    """Image files of an archive, beside the listed ones, that no list names."""
    empty: list[str] = field(default_factory=list)
    """Class folders of one's own without an image, and what they hold."""
    loose: list[str] = field(default_factory=list)
    """Images in a folder of one's own that lie in no class folder."""
    unread: list[str] = field(default_factory=list)
    """Endings of files in its class folders that are not read."""
    hidden: list[str] = field(default_factory=list)
    """Images in its class folders whose names begin with a dot, and which are not read."""
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    """(training image, test image) with the same pixels."""
    changed: list[str] = field(default_factory=list)
    """Images that are no longer those that were decoded for training."""
    split: str = ""
    """The official split whose numbers of images these are, '' if none."""
    single: list[str] = field(default_factory=list)
    """Classes of one image, unless the official dataset has them."""
    counts: str = ""
    """How the counts differ from the official ones, '' if they do not."""

    @property
    def sound(self) -> bool:
        return not self.problems()

    @property
    def wrong_layout(self) -> bool:
        """Whether the tree is another than it should be; else what is wrong is single images."""
        return bool(self.counts or self.bare or self.empty)

    def problems(self) -> list[str]:
        """One line for each kind of finding, naming the first few."""
        problems = []
        if self.counts:
            problems.append(f"counts: {self.counts}; unpack the archive again")
        if self.missing:
            missing = [f"{path} (line {self.lines[path]})" if path in self.lines else path for path in self.missing]
            listed = counted(len(missing), "listed image is", "listed images are")
            problems.append(f"missing: {listed} not there: {first(missing)}; {PUT_BACK[self.family]}")
        if self.unreadable:
            causes = [f"{path} ({cause})" for path, cause in sorted(self.unreadable.items())]
            problems.append(f"unreadable: {counted(len(causes), 'image')} cannot be decoded: {first(causes)}; "
                            f"{'replace or remove' if self.family == 'folder' else 'replace'} {_them(causes)}")
        if self.extra:
            problems.append(f"extra: {counted(len(self.extra), 'image is', 'images are')} on no list: "
                            f"{first(self.extra)}; remove {_them(self.extra)}")
        if self.empty:
            folders = counted(len(self.empty), "class folder has no image and is no class",
                              "class folders have no image and are no classes")
            problems.append(f"empty: {folders}: {first(self.empty)}; put images there (JPEG, PNG, ...) or take "
                            "the folder away")
        if self.duplicates:
            pairs = [f"{one} = {other}" for one, other in self.duplicates]
            twice = counted(len(pairs), "test image is a training image", "test images are training images")
            problems.append(f"duplicates: {twice} too: {first(pairs)}; scores on {_them(pairs)} measure memory")
        if self.changed:
            other = counted(len(self.changed), "image is not that which was", "images are not those that were")
            problems.append(f"changed: {other} decoded for training: {first(self.changed)}; put "
                            f"{_them(self.changed)} back, or decode anew (`oodml datasets prepare`) and make ladders "
                            "and runs of that")
        if self.single:
            problems.append(f"single: {counted(len(self.single), 'class has', 'classes have')} one image, which has "
                            f"nothing to be matched with: {first(self.single)}; add images or remove the class")
        return problems

    def notes(self) -> list[str]:
        """What is no fault, but should be known: files that play no part."""
        notes = [f"these are the numbers of images of {self.split}"] if self.split else []
        if self.loose:
            loose = counted(len(self.loose), "image lies in no class folder and plays",
                            "images lie in no class folder and play")
            notes.append(f"{loose} no part: {first(self.loose)}")
        if self.unread:
            notes.append(f"files with these endings are not read as images: {first(self.unread)}")
        if self.hidden:
            images = counted(len(self.hidden), "hidden image, whose name begins with a dot, is",
                             "hidden images, whose names begin with a dot, are")
            notes.append(f"{images} not read: {first(self.hidden)}")
        return notes


def _them(items: list[str]) -> str:
    return "it" if len(items) == 1 else "them"


def first(items: list[str]) -> str:
    """The first few of them, and how many more there are.

    >>> first(["a", "b"]), first(list("abcdefg"))
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    return ", ".join(items[:NAMED]) + (f" and {len(items) - NAMED:,} more" if len(items) > NAMED else "")

"""The readers, on the official layouts written in miniature and on annotation files of the official size."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from benchmark import datasets
from benchmark.commands.datasets import command
from benchmark.datasets.reading import NotThere, rows, safe
from benchmark.overview import class_sizes
from benchmark.overview.contact_sheet import contact_sheet
from benchmark.utils.errors import UserError
from tests import layouts

LAYOUTS = [
    ("cub", "CUB_200_2011", layouts.cub, {}),
    ("cub", "CUB_200_2011/CUB_200_2011", layouts.cub, {}),
    ("cub", "cub200", layouts.cub, {}),
    ("cub", "Cub", layouts.cub, {}),
    ("cars", "cars196", layouts.cars, {}),
    ("cars", "stanford_cars", layouts.cars_devkit, {}),
    ("cars", "stanford_cars", layouts.cars_devkit, {"labels_in": "devkit"}),
    ("cars", "cars", layouts.cars_devkit, {"kit": "car_devkit/devkit", "labels_in": ".", "nested": True}),
    ("sop", "Stanford_Online_Products", layouts.sop, {}),
    ("sop", "online_products", layouts.sop, {"authors": True}),
    ("sop", "sop/Stanford_Online_Products", layouts.sop, {}),
    ("inshop", "In-shop Clothes Retrieval Benchmark", layouts.inshop, {}),
    ("inshop", "inshop", layouts.inshop, {"list_in": ".", "images_in": "."}),
    ("nabirds", "nabirds", layouts.nabirds, {}),
    ("dogs", "stanford_dogs", layouts.dogs, {}),
    ("dogs", "dogs", layouts.dogs, {"lists_in": "lists"}),
    ("flowers", "flowers-102", layouts.flowers, {}),
    ("flowers", "102flowers", layouts.flowers, {}),
    ("aircraft", "fgvc-aircraft-2013b", layouts.aircraft, {}),
    ("aircraft", "aircraft", layouts.aircraft, {"separate": True}),
    ("inat", "inaturalist", layouts.inat, {}),
    ("inat", "inat2018", layouts.inat, {"lists_in": "."}),
    ("pets", "oxford-iiit-pet", layouts.pets, {}),
    ("food2k", "food2k", layouts.food2k, {}),
    ("food2k", "Food2K", layouts.food2k, {"inner": "."}),
    ("rp2k", "rp2k", layouts.rp2k, {}),
    ("rp2k", "RP2K", layouts.rp2k, {"inner": "."}),
    ("met", "met", layouts.met, {}),
    ("met", "the-met-dataset", layouts.met, {"images": "."}),
    ("gldv2", "gldv2", layouts.gldv2, {}),
]
FULL = {
    "cub": ("CUB_200_2011", layouts.cub), "cars": ("cars196", layouts.cars),
    "sop": ("Stanford_Online_Products", layouts.sop), "nabirds": ("nabirds", layouts.nabirds),
    "dogs": ("stanford_dogs", layouts.dogs), "flowers": ("flowers-102", layouts.flowers),
    "aircraft": ("fgvc-aircraft-2013b", layouts.aircraft), "pets": ("oxford-iiit-pet", layouts.pets),
}


def names_of(index: datasets.DatasetIndex) -> dict[str, str]:
    return {path: index.classes[label] for path, label in zip(index.paths, index.labels)}


def table_row(name: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The line of one dataset in `oodml datasets`, with no other looked at."""
    monkeypatch.setattr(datasets, "names", lambda: [name])
    return CliRunner().invoke(command, ["--data", str(data)]).output.splitlines()[1]


@pytest.mark.parametrize(("name", "folder", "write", "options"), LAYOUTS)
def test_every_layout_is_read_back(tmp_path, name, folder, write, options):
    truth = write(tmp_path / folder, **options)
    layouts.litter(tmp_path)
    index = datasets.load(name, tmp_path)
    read = names_of(index)
    assert {path: (text[:3] if name == "flowers" else text) for path, text in read.items()} == truth
    assert index.name == name
    assert datasets.present(name, tmp_path)
    assert set(index.train_classes).isdisjoint(index.test_classes)
    assert {*index.train_classes, *index.test_classes} == set(index.classes)
    assert index.open(0).convert("RGB").size == (24, 18)
    order = list(zip(index.labels.tolist(), index.paths))
    assert order == sorted(order)
    if name != "inshop":
        assert index.train_classes == index.classes[:2]
        assert Counter(read.values()) == {c: n for c, n in zip(index.classes, layouts.SMALL)}


def test_the_outer_folder_and_the_authors_layout_do_not_change_the_index(tmp_path):
    hashes = []
    for i, (name, folder, write, options) in enumerate(e for e in LAYOUTS if e[0] in ("cub", "sop")):
        write(tmp_path / str(i) / folder, **options)
        hashes.append((name, datasets.load(name, tmp_path / str(i)).hash))
    assert len(set(hashes)) == 2


def test_the_data_folder_may_be_the_dataset_itself(tmp_path):
    layouts.nabirds(tmp_path / "nabirds")
    assert len(datasets.load("nabirds", tmp_path / "nabirds")) == sum(layouts.SMALL)
    with pytest.raises(NotThere):
        datasets.load("cub", tmp_path / "nabirds")


def test_class_folders_alone(tmp_path):
    truth = layouts.cub(tmp_path / "cub200")
    with_lists = datasets.load("cub", tmp_path)
    for name in ("images.txt", "image_class_labels.txt", "classes.txt"):
        (tmp_path / "cub200" / name).unlink()
    layouts.litter(tmp_path)
    assert datasets.load("cub", tmp_path).hash == with_lists.hash
    assert names_of(with_lists) == truth
    for name in ("FIAT 500 Abarth 2012", "Ram C-V Cargo Van Minivan 2012", "AM General Hummer SUV 2000"):
        layouts.picture(tmp_path / "cars196" / "images" / name / "00001.JPG", name, format="JPEG")
    assert datasets.load("cars", tmp_path).train_classes == ("AM General Hummer SUV 2000", "FIAT 500 Abarth 2012")


def test_a_stray_annotation_file_does_not_hide_a_complete_devkit(tmp_path):
    place = tmp_path / "stanford_cars"
    truth = layouts.cars_devkit(place)
    layouts.cars(place, draw=False)
    assert names_of(datasets.load("cars", tmp_path)) == truth
    assert datasets.present("cars", tmp_path)
    other = layouts.cars(place)
    assert names_of(datasets.load("cars", tmp_path)) == other


@pytest.mark.parametrize("name", FULL)
def test_annotations_of_the_official_size_give_the_official_counts(tmp_path, monkeypatch, name):
    folder, write = FULL[name]
    official = datasets.get(name).counts
    sizes = [*layouts.spread(official.train_images, official.train_classes),
             *layouts.spread(official.test_images, official.test_classes)]
    options = {"train": official.train_classes} if name == "sop" else {}
    write(tmp_path / folder, sizes, draw=False, **options)
    index = datasets.load(name, tmp_path)
    assert len(index.of_classes(index.train_classes)) == official.train_images
    assert len(index.of_classes(index.test_classes)) == official.test_images
    assert (len(index.train_classes), len(index.test_classes)) == (official.train_classes, official.test_classes)
    assert np.bincount(index.labels).tolist() == sizes
    assert not datasets.has_images(index)
    monkeypatch.setattr(datasets, "load", lambda *_: index)  # the large lists are read once
    row = table_row(name, tmp_path, monkeypatch)
    assert row.split()[:3] == [name, "no", "images"]
    assert f"{official.train_images:,} / {official.test_images:,}" in row
    assert " official " in row


def test_in_shop_of_the_official_size(tmp_path):
    layouts.inshop(tmp_path / "inshop", layouts.spread(25882, 3997), layouts.spread(26830, 3985), 14218, draw=False)
    index = datasets.load("inshop", tmp_path)
    assert Counter(index.roles.tolist()) == {"": 25882, "query": 14218, "gallery": 12612}
    assert (len(index.train_classes), len(index.test_classes)) == (3997, 3985)
    assert len(index.of_classes(index.train_classes)) == 25882
    assert set(index.roles[index.of_classes(index.train_classes)]) == {""}
    assert datasets.get("inshop").counts == datasets.Counts(25882, 3997, 26830, 3985)


def test_visitors_photographs_are_the_queries_of_met(tmp_path):
    layouts.met(tmp_path / "met")
    index = datasets.load("met", tmp_path)
    assert (index.train_classes, index.test_classes) == (("9", "10"), ("11", "12"))
    assert Counter(index.roles.tolist()) == {"": 5, "gallery": 4, "query": 2}
    assert set(index.roles[index.of_classes(index.train_classes)]) == {""}


@pytest.mark.parametrize("name", ["food2k", "met", "gldv2"])
def test_of_some_the_whole_is_known_alone(tmp_path, monkeypatch, name):
    getattr(layouts, name)(tmp_path / name)
    words = ["check", name, "--data", str(tmp_path), "--work", str(tmp_path), "--jobs", "1"]
    wrong = CliRunner().invoke(command, words)
    assert wrong.exit_code == 1
    official = "{:,} of {:,}".format(*datasets.get(name).size)
    assert f"11 images of 4 classes; official are {official}" in wrong.output
    monkeypatch.setitem(datasets._all(), name, replace(datasets.get(name), size=(11, 4)))
    right = CliRunner().invoke(command, words)
    assert right.exit_code == 0, right.output
    assert "(the official counts)" in right.output
    assert " official " in table_row(name, tmp_path, monkeypatch)


def test_the_published_totals_of_the_union():
    counts = datasets.get("uml").counts
    assert counts == datasets.Counts(141_404, 15_952, 148_595 - 28_760 + 26_830, 15_937)
    assert counts.test_images == 146_665


def test_in_shop_keeps_its_first_line(tmp_path):
    layouts.snap("2\nimage_name item_id evaluation_status\n"
         "img/MEN/a/id_00000010/1.jpg id_00000010 train\nimg/MEN/a/id_00000009/1.jpg   id_00000009 query\n",
         tmp_path / "inshop" / "Eval" / "list_eval_partition.txt")
    index = datasets.load("inshop", tmp_path)
    assert index.classes == ("id_00000009", "id_00000010")
    assert index.train_classes == ("id_00000010",)
    assert index.roles.tolist() == ["query", ""]


@pytest.mark.parametrize(("name", "folder", "write", "lost"), [
    ("cub", "cub200", layouts.cub, "images.txt"),
    ("cub", "cub200", layouts.cub, "image_class_labels.txt"),
    ("cub", "cub200", layouts.cub, "classes.txt"),
    ("cars", "cars196", layouts.cars, "cars_annos.mat"),
    ("cars", "cars196", layouts.cars_devkit, "devkit/cars_meta.mat"),
    ("cars", "cars196", layouts.cars_devkit, "devkit/cars_train_annos.mat"),
    ("cars", "cars196", layouts.cars_devkit, "cars_test_annos_withlabels.mat"),
    ("sop", "sop", layouts.sop, "Ebay_test.txt"),
    ("inshop", "inshop", layouts.inshop, "Eval/list_eval_partition.txt"),
    ("nabirds", "nabirds", layouts.nabirds, "images.txt"),
    ("dogs", "dogs", layouts.dogs, "file_list.mat"),
    ("flowers", "flowers", layouts.flowers, "imagelabels.mat"),
    ("aircraft", "aircraft", layouts.aircraft, "data/images_variant_test.txt"),
    ("inat", "inat", layouts.inat, "Inat_dataset_splits/Inaturalist_test_set1.txt"),
    ("pets", "pets", layouts.pets, "annotations/list.txt"),
    ("met", "met", layouts.met, "ground_truth/testset.json"),
    ("gldv2", "gldv2", layouts.gldv2, "train_clean.csv"),
])
@pytest.mark.parametrize("how", ["missing", "cut"])
def test_a_missing_or_cut_annotation_file(tmp_path, monkeypatch, name, folder, write, lost, how):
    write(tmp_path / folder)
    path = tmp_path / folder / lost
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:9] if path.suffix == ".mat" else b"")
    with pytest.raises(UserError) as caught:
        datasets.load(name, tmp_path)
    assert not isinstance(caught.value, NotThere)
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert table_row(name, tmp_path, monkeypatch).split()[:2] == [name, "broken"]


@pytest.mark.parametrize(("file", "line"), [
    ("Ebay_test.txt", "9 9 1 ../../secret.JPG"), ("Ebay_test.txt", "9 9 1 /secret.JPG"),
    ("Ebay_test.txt", "9 nine 1 a.JPG"), ("Ebay_test.txt", "9 9"), ("Ebay_test.txt", "9 1 1 bicycle_final/7_1.JPG"),
])
def test_bad_lines_in_an_official_list(tmp_path, file, line):
    layouts.sop(tmp_path / "sop")
    with (tmp_path / "sop" / file).open("a", encoding="utf-8") as list_file:
        list_file.write(line + "\n")
    with pytest.raises(UserError, match=file):
        datasets.load("sop", tmp_path)


@pytest.mark.parametrize("file", ["Ebay_train.txt", "Ebay_test.txt"])
def test_a_list_of_nothing_but_its_head(tmp_path, file):
    layouts.sop(tmp_path / "sop")
    layouts.snap("image_id class_id super_class_id path\n", tmp_path / "sop" / file)
    with pytest.raises(UserError, match=f"{file} names no image"):
        datasets.load("sop", tmp_path)


@pytest.mark.parametrize(("file", "line"), [("images.txt", "1 other.jpg"), ("image_class_labels.txt", "1 2"),
                                            ("classes.txt", "1 other")])
def test_two_lines_that_disagree_about_a_number(tmp_path, file, line):
    """One of them would be lost, and an image with it or under another class."""
    layouts.cub(tmp_path / "cub")
    path = tmp_path / "cub" / file
    first = path.read_text(encoding="utf-8").splitlines()[0]
    path.write_text(path.read_text(encoding="utf-8") + first + "\n", encoding="utf-8")
    datasets.load("cub", tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=rf"{file} has two lines for 1, .* and '{line[2:]}'"):
        datasets.load("cub", tmp_path)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_damaged_line_is_counted_as_editors_count_it(tmp_path, end):
    (tmp_path / "images.txt").write_bytes(end.join(["1 a.jpg", "2 b.jpg", "3", ""]).encode())
    with pytest.raises(UserError, match="line 3: expected 2 fields, found '3'"):
        rows(tmp_path / "images.txt", 2, "cub")


def test_products_that_share_a_number_stay_apart(tmp_path):
    header = "image_id class_id super_class_id path\n"
    layouts.snap(header + "1 1 1 bicycle_final/7_0.JPG\n", tmp_path / "sop" / "Ebay_train.txt")
    layouts.snap(header + "2 2 1 chair_final/7_0.JPG\n3 3 1 chair_final/8_0.JPG\n", tmp_path / "sop" / "Ebay_test.txt")
    assert datasets.load("sop", tmp_path).classes == ("7 #1", "7 #2", "8")


def test_empty_folders_and_absent_datasets(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no images"):
        datasets.load(f"folder:{tmp_path / 'empty'}", tmp_path)
    for name in ("folder:", f"folder:{tmp_path / 'none'}", "csv:", f"csv:{tmp_path}", "cub", "uml", "union:cub,cars"):
        with pytest.raises(NotThere):
            datasets.load(name, tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"did you mean 'cars'"):
        datasets.get("carss")


def test_safe_paths():
    assert safe("a..b/c.jpg", "list") == "a..b/c.jpg"
    for bad in ("..", "../a", "a/..", "/a", "//a", "", "./../a", "/./a"):
        with pytest.raises(UserError):
            safe(bad, "list")


def test_show_says_where_a_dataset_comes_from(tmp_path):
    for name in datasets.names():
        dataset = datasets.get(name)
        if dataset.embedded:
            continue
        assert dataset.source
        result = CliRunner().invoke(command, ["show", name, "--data", str(tmp_path)])
        assert result.exit_code == 0
        assert dataset.source in result.output
        assert dataset.tree.splitlines()[0] in result.output


def test_prepare_keeps_the_decoded_images(tmp_path):
    layouts.cub(tmp_path / "cub")
    options = ["--data", str(tmp_path), "--work", str(tmp_path / "work"), "--jobs", "1"]
    result = CliRunner().invoke(command, ["prepare", "cub", *options], catch_exceptions=False)
    assert result.exit_code == 0
    assert f"cub: {sum(layouts.SMALL)} images decoded" in result.output
    assert list((tmp_path / "work" / "cache").iterdir())


def test_show_counts_and_draws_a_sheet(tmp_path):
    layouts.inshop(tmp_path / "inshop")
    sheet = tmp_path / "sheets" / "inshop.png"
    result = CliRunner().invoke(command, ["--data", str(tmp_path), "show", "inshop", "--sheet", str(sheet)])
    assert result.exit_code == 0, result.output
    assert "2 queries, 5 gallery" in result.output
    with Image.open(sheet) as image:
        assert image.width > 8 * 96
        assert len(image.getcolors(1 << 24)) > 1000


def test_the_sizes_of_training_classes_are_drawn_by_dataset(tmp_path):
    layouts.cub(tmp_path / "cub", (3, 5, 2, 4))
    layouts.cars(tmp_path / "cars", (6, 1, 2, 2))
    union = datasets.load("union:cub,cars", tmp_path)
    counted = {name: [] for name in union.domain_names}
    for name in union.train_classes:
        images = union.of_classes((name,))
        counted[union.domain_names[union.domains[images[0]]]].append(len(images))
    assert {name: list(each) for name, each in class_sizes.sizes(union).items()} == {
        name: sorted(each, reverse=True) for name, each in counted.items()}
    out = tmp_path / "figures" / "sizes.svg"
    words = ["--data", str(tmp_path), "show", "union:cub,cars", "--sizes"]
    result = CliRunner().invoke(command, [*words, str(out)])
    assert result.exit_code == 0, result.output
    assert f"cub: {sum(counted['cub'])} images of {len(counted['cub'])} classes" in out.read_text()
    assert "can be .png" in str(CliRunner().invoke(command, [*words, "sizes.txt"]).exception)


def test_a_sheet_names_the_image_that_it_cannot_show(tmp_path):
    layouts.cub(tmp_path / "cub")
    path = tmp_path / "cub" / "images" / datasets.load("cub", tmp_path).paths[0]
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(UserError, match="put the original file back") as caught:
        contact_sheet(datasets.load("cub", tmp_path), tmp_path / "sheet.png")
    assert str(path) in str(caught.value)
    assert not (tmp_path / "sheet.png").exists()
    with pytest.raises(UserError, match="; replace or remove it"):  # one's own may have no original
        contact_sheet(datasets.load(f"folder:{tmp_path / 'cub' / 'images'}", tmp_path), tmp_path / "sheet.png")


def test_a_dataset_that_cannot_be_read_does_not_hide_the_others(tmp_path, monkeypatch):
    layouts.cub(tmp_path / "cub")

    def closed(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(datasets, "names", lambda: ["cub", "glyphs-mini"])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", closed)
        done = CliRunner().invoke(command, ["--data", str(tmp_path)])
        assert not datasets.present("cub", tmp_path)
    rows = [line.split() for line in done.output.splitlines()]
    assert rows[1][:2] == ["cub", "unreadable"]
    assert "Permission denied" in done.output
    assert rows[2][:2] == ["glyphs-mini", "embedded"]

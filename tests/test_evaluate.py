"""Submitted embeddings: every file format, every check, and the record that comes of it."""

from __future__ import annotations

import csv
import io
import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from benchmark import datasets
from benchmark.cli import cli
from benchmark.commands import evaluate as evaluate_command
from benchmark.metrics.clustering import KMEANS
from benchmark.utils.errors import UserError
from reports import records
from splits.manifest import Ladder, Split, save
from tests.sample_records import make_record


@pytest.fixture
def birds(tmp_path):
    """A folder of 8 classes with 5 small images each, and a ladder of three rungs for it."""
    for c in range(8):
        (tmp_path / "birds" / f"c{c}").mkdir(parents=True)
        for i in range(5):
            Image.new("RGB", (2, 2), (c, i, 0)).save(tmp_path / "birds" / f"c{c}" / f"{i}.png")
    names = tuple(f"c{c}" for c in range(8))
    splits = (Split(1, "default", 0, names[:4], names[4:], (), 20, 20, 1.5, 0.5),
              Split(2, "swap", 3, names[4:], names[:4], (), 20, 20, 2.5, 1.5),
              Split(3, "removal", 4, names[:2], names[6:], (), 10, 10, 3.5, 2.5))
    files = datasets.load(f"folder:{tmp_path / 'birds'}", tmp_path).hash
    save(Ladder("birds", files, {}, {}, splits), tmp_path / "work" / "splits" / "birds.json")
    return tmp_path


def sent(train=False, seed=0):
    """Random embeddings in an order of their own, and the images they belong to."""
    random = np.random.default_rng(seed)
    ids = [f"c{c}/{i}.png" for c in range(0 if train else 4, 8) for i in range(5)]
    order = random.permutation(len(ids))
    return [ids[i] for i in order], random.normal(size=(len(ids), 6)).astype(np.float32)


def run(birds, file, *more):
    return CliRunner().invoke(cli, ["evaluate", "--embeddings", str(file), "--dataset", f"folder:{birds / 'birds'}",
                                    "--split", "1", "--work", str(birds / "work"), "--device", "cpu", *more],
                              catch_exceptions=True)


def recall_at_1(ids, x):
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    hits = []
    for i, name in enumerate(ids):
        nearest = max((j for j in range(len(ids)) if j != i), key=lambda j: x[i] @ x[j])
        hits.append(ids[nearest].split("/")[0] == name.split("/")[0])
    return np.mean(hits)


def test_the_record_of_a_submission(birds):
    ids, x = sent()
    np.savez(birds / "mine.npz", embeddings=x, ids=ids)
    result = run(birds, birds / "mine.npz", "--seed", "3", "--clusters", "--backbone", "vit")
    assert result.exit_code == 0, result.output + repr(result.exception)
    assert "normalised before the search" in result.output
    (path,) = (birds / "work" / "runs" / "birds" / "1" / "mine").glob("s3-*/record.json")
    record = records.read(path)
    assert (record["source"], record["method"]["name"], record["backbone"]["name"]) == ("submitted", "mine", "vit")
    assert record["scores"]["last"]["recall@1"] == pytest.approx(recall_at_1(ids, x))
    assert 0 <= record["scores"]["last"]["nmi"] <= 1
    assert 0 <= record["scores"]["last"]["f1"] <= 1
    assert record["provenance"]["kmeans"] == KMEANS
    assert record["queries"] == {"count": 20, "left_out": 0}
    assert record["split"]["ladder"] == [[1, 1.5], [2, 2.5], [3, 3.5]]
    assert list(record["structure"]) == ["test"]
    with np.load(path.with_name("queries.npz")) as found:
        assert (found["first_hit"] == 1).mean() == pytest.approx(recall_at_1(ids, x))
        assert found["labels"].tolist() == sorted(found["labels"].tolist())
    frame = records.collect(birds / "work" / "runs")
    assert frame["source"].tolist() == ["submitted"]


def test_the_same_embeddings_in_another_order_are_the_same_submission(birds):
    ids, x = sent()
    np.savez(birds / "mine.npz", embeddings=x, ids=ids)
    assert run(birds, birds / "mine.npz").exit_code == 0
    np.savez(birds / "mine.npz", embeddings=x[::-1], ids=ids[::-1])
    assert run(birds, birds / "mine.npz").exit_code == 0
    assert len(list(birds.glob("work/runs/birds/1/mine/*/record.json"))) == 1


def test_training_embeddings_are_measured_where_all_are_there(birds):
    ids, x = sent(train=True)
    np.savez(birds / "both.npz", embeddings=x, ids=ids)
    result = run(birds, birds / "both.npz")
    assert result.exit_code == 0, result.output + repr(result.exception)
    (path,) = birds.glob("work/runs/birds/1/both/*/record.json")
    assert set(records.read(path)["structure"]) == {"train", "test"}
    notes = [line for line in result.output.splitlines() if line.startswith("note:")]
    assert [note.split(" from ")[0] for note in notes] == ["note: lengths run", "note: training images: lengths run"]


def test_a_part_of_the_training_images_is_told(birds):
    ids, x = sent(train=True)
    kept = [i for i, name in enumerate(ids) if name not in ("c0/1.png", "c2/3.png", "c3/0.png")]
    np.savez(birds / "both.npz", embeddings=x[kept], ids=[ids[i] for i in kept])
    result = run(birds, birds / "both.npz")
    assert "note: 17 of 20 training images: training structure not measured" in result.output
    (path,) = birds.glob("work/runs/birds/1/both/*/record.json")
    assert list(records.read(path)["structure"]) == ["test"]


def test_embeddings_of_the_whole_dataset_do_for_every_rung(birds):
    ids, x = sent(train=True)
    np.savez(birds / "all.npz", embeddings=x, ids=ids)
    result = run(birds, birds / "all.npz", "--split", "3")
    assert result.exit_code == 0, result.output + repr(result.exception)
    assert "note: 20 of 40 embeddings are of images that split 3 does not use" in result.output
    (path,) = birds.glob("work/runs/birds/3/all/*/record.json")
    test = [i for i, name in enumerate(ids) if name[:2] in ("c6", "c7")]
    assert records.read(path)["scores"]["last"]["recall@1"] == pytest.approx(recall_at_1([ids[i] for i in test],
                                                                                           x[test]))


@pytest.mark.parametrize("form", ["csv", "json", "txt"])
def test_the_exported_list_names_the_embeddings(birds, form):
    listed = CliRunner().invoke(cli, ["splits", "export", "--dataset", f"folder:{birds / 'birds'}", "--split", "1",
                                      "--work", str(birds / "work"), "--out", str(birds), "--format", form])
    assert listed.exit_code == 0, listed.output
    ids = [f"c{c}/{i}.png" for c in range(8) for i in range(5)]
    x = np.random.default_rng(1).normal(size=(40, 6)).astype(np.float32)
    np.save(birds / "mine.npy", x)
    result = run(birds, birds / "mine.npy", "--ids", str(birds / f"birds-1.{form}"))
    assert result.exit_code == 0, result.output + repr(result.exception)
    (path,) = birds.glob("work/runs/birds/1/mine/*/record.json")
    assert records.read(path)["scores"]["last"]["recall@1"] == pytest.approx(recall_at_1(ids[20:], x[20:]))


@pytest.fixture
def flock(tmp_path):
    """Three datasets in one list, of which the last has queries and nothing to find; and a ladder for it."""
    (tmp_path / "images").mkdir()
    rows = [("path", "label", "split", "domain", "role")]
    for domain, label, i in itertools.product(("birds", "cars", "shop"), range(4), range(5)):
        role = "query" if domain == "shop" and label > 1 else ""
        rows.append((f"images/{domain}-{label}-{i}.png", f"l{label}", "train" if label < 2 else "test", domain, role))
        Image.new("RGB", (2, 2), (label, i, len(domain))).save(tmp_path / rows[-1][0])

    def write(chosen):
        text = io.StringIO()
        csv.writer(text).writerows([rows[0], *(row for row in rows[1:] if row[3] in chosen)])
        (tmp_path / "flock.csv").write_text(text.getvalue())
        built = CliRunner().invoke(cli, ["splits", "build", "--dataset", f"csv:{tmp_path / 'flock.csv'}", "--work",
                                         str(tmp_path / "work"), "--default-only", "--replace"])
        assert built.exit_code == 0, built.output + repr(built.exception)
        ids = [row[0] for row in rows[1:] if row[2] == "test" and row[3] in chosen]
        x = np.random.default_rng(2).normal(size=(len(ids), 6)).astype(np.float32)
        np.savez(tmp_path / "mine.npz", embeddings=x, ids=ids)
        result = CliRunner().invoke(cli, ["evaluate", "--embeddings", str(tmp_path / "mine.npz"), "--dataset",
                                          f"csv:{tmp_path / 'flock.csv'}", "--split", "1", "--work",
                                          str(tmp_path / "work"), "--device", "cpu"])
        return ids, x, result

    return write


def of_classes(ids):
    """Names whose part before the slash is the class, as `recall_at_1` reads them."""
    return [name[7:].rpartition("-")[0] + "/" + name for name in ids]


def test_a_union_shows_its_members_and_their_harmonic_mean(flock):
    ids, x, result = flock(("birds", "cars"))
    assert result.exit_code == 0, result.output + repr(result.exception)
    shown = {line.rsplit(maxsplit=7)[0].strip(): line.split()[-7:] for line in result.output.splitlines()}
    alone = {member: 100 * recall_at_1(of_classes([ids[i] for i in own]), x[own]) for member in ("birds", "cars")
             for own in [[i for i, name in enumerate(ids) if f"/{member}-" in name]]}
    for member, recall in alone.items():
        assert float(shown[member][0]) == pytest.approx(recall, abs=0.006)
    assert float(shown["harmonic mean"][0]) == pytest.approx(2 / sum(1 / r for r in alone.values()), abs=0.006)
    assert f"recall@1     {100 * recall_at_1(of_classes(ids), x):6.2f}" in result.output


def test_a_member_without_a_gallery_is_told(flock):
    _, _, result = flock(("birds", "cars", "shop"))
    assert result.exit_code == 0, result.output + repr(result.exception)
    assert "note: shop: no query has an image to find" in result.output
    assert result.output.count("nan") == 14  # seven measures of the member, seven of the mean
    _, _, alone = flock(("shop",))
    assert isinstance(alone.exception, UserError), alone.output + repr(alone.exception)
    assert "split 1: every test image is a query, there is no gallery" in str(alone.exception)


@pytest.mark.parametrize(("device", "message"), [
    ("foo", "there is no device 'foo' here"), ("meta", "there is no device 'meta' here"), ("cuda:99", "may be cpu"),
    pytest.param("cuda", "--device may be cpu",
                 marks=pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU"))])
@pytest.mark.parametrize("command", [["evaluate", "--embeddings", "mine.npz", "--split", "1"], ["splits", "build"],
                                     ["splits", "compare", "--backbones", "resnet50,conv4"]])
def test_a_device_that_is_not_here_is_one_line(birds, device, message, command):
    np.savez(birds / "mine.npz", embeddings=sent()[1], ids=sent()[0])
    arguments = [str(birds / part) if part == "mine.npz" else part for part in command]
    done = CliRunner().invoke(cli, [*arguments, "--dataset", f"folder:{birds / 'birds'}", "--work",
                                    str(birds / "work"), "--device", device])
    assert isinstance(done.exception, UserError), repr(done.exception)
    assert message in str(done.exception)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("factor", "kind"), [(1e20, np.float32), (1e-30, np.float32), (1e30, np.float32),
                                              (1e200, np.float64), (1e-200, np.float64)])
def test_lengths_of_any_size_are_scored_alike(birds, factor, kind):
    ids, x = sent(train=True)
    scores = []
    for name, table in (("plain", x), ("other", (x.astype(np.float64) * factor).astype(kind))):
        np.savez(birds / f"{name}.npz", embeddings=table, ids=ids)
        result = run(birds, birds / f"{name}.npz", "--clusters")
        assert result.exit_code == 0, result.output + repr(result.exception)
        (path,) = birds.glob(f"work/runs/birds/1/{name}/*/record.json")
        record = records.read(path)
        found = {**record["scores"]["last"], **record["structure"]["train"]}
        scores.append({measure: value for measure, value in found.items() if isinstance(value, float)})
    assert scores[1] == pytest.approx(scores[0], rel=1e-5)
    lengths = np.linalg.norm(x.astype(np.float64), axis=1) * factor
    assert f"training images: lengths run from {lengths[[i for i, n in enumerate(ids) if n < 'c4']].min():.4g}" in (
        result.output)


def test_a_parquet_file_goes_all_the_way(birds):
    pytest.importorskip("pyarrow")
    ids, x = sent()
    pd.DataFrame({"path": ids, "embedding": list(x)}).to_parquet(birds / "mine.parquet")
    result = run(birds, birds / "mine.parquet")
    assert result.exit_code == 0, result.output + repr(result.exception)
    (path,) = birds.glob("work/runs/birds/1/mine/*/record.json")
    assert records.read(path)["scores"]["last"]["recall@1"] == pytest.approx(recall_at_1(ids, x))
    (birds / "cut.parquet").write_bytes((birds / "mine.parquet").read_bytes()[:-9])
    assert "cannot read" in str(run(birds, birds / "cut.parquet").exception)
    for frame in (pd.DataFrame({"path": ids, "embedding": [row[:i % 3 + 1] for i, row in enumerate(x)]}),
                  pd.DataFrame({"path": ids, "embedding": ids}), pd.DataFrame({"path": ids})):
        frame.to_parquet(birds / "cut.parquet")
        assert isinstance(run(birds, birds / "cut.parquet").exception, UserError)


def broken(change):
    ids, x = sent()
    return change(list(ids), x.copy())


@pytest.mark.parametrize(("change", "message"), [
    (lambda ids, x: (ids[1:], x[1:]), "1 of 20 test images have no embedding"),
    (lambda ids, x: ([f"images/{name}" for name in ids], x), "ids such as 'images/c4/0.png'"),
    (lambda ids, x: ([*ids, "c9/0.png"], np.vstack([x, x[:1]])), "no images of this dataset, such as 'c9/0.png'"),
    (lambda ids, x: ([*ids, ids[4]], np.vstack([x, x[:1]])), "comes twice"),
    (lambda ids, x: (ids[1:], x), "20 embeddings but 19 ids"),
    (lambda ids, x: (ids, np.where(np.arange(20)[:, None] == 3, np.nan, x)), "1 embedding holds NaN"),
    (lambda ids, x: (ids, np.where(np.arange(20)[:, None] == 3, 0, x)), "1 embedding is all zero"),
    (lambda ids, x: (ids, x[:, :, None]), "one row an image"),
    (lambda ids, x: (ids, x[:, :0]), "one row an image"),
    (lambda ids, x: (ids, x.astype(str)), "one row an image"),
])
def test_what_is_wrong_is_said_in_one_line(birds, change, message):
    ids, x = broken(change)
    np.savez(birds / "mine.npz", embeddings=x, ids=ids)
    result = run(birds, birds / "mine.npz")
    assert isinstance(result.exception, UserError), result.output
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not list(birds.glob("work/runs/**/record.json"))


def test_missing_files_names_and_rungs(birds):
    ids, x = sent()
    assert "there is no file" in str(run(birds, birds / "none.npz").exception)
    several = str(run(birds, birds / "none-{split}.npz", "--split", "all").exception)
    assert "none-1.npz" in several
    assert "--split ID" in several
    np.save(birds / "mine.npy", x)
    assert "--ids FILE" in str(run(birds, birds / "mine.npy").exception)
    np.savez(birds / "mine.npz", embeddings=x, ids=ids)
    assert "a method of this suite" in str(run(birds, birds / "mine.npz", "--name", "multisimilarity").exception)
    assert "is no name" in str(run(birds, birds / "mine.npz", "--name", "../x").exception)
    assert "has no split 7" in str(run(birds, birds / "mine.npz", "--split", "7").exception)


def test_a_ladder_of_other_files_is_refused(birds):
    ids, x = sent()
    np.savez(birds / "mine.npz", embeddings=x, ids=ids)
    Image.new("RGB", (2, 2)).save(birds / "birds" / "c0" / "new.png")
    done = run(birds, birds / "mine.npz")
    assert isinstance(done.exception, UserError)
    assert "built from other files" in str(done.exception)


def test_the_default_split_by_its_name(birds):
    np.savez(birds / "mine.npz", embeddings=sent()[1], ids=sent()[0])
    by_name = run(birds, birds / "mine.npz", "--split", "default")
    assert by_name.exit_code == 0, by_name.output + repr(by_name.exception)
    assert by_name.output == run(birds, birds / "mine.npz").output
    assert "--split first: write numbers" in str(run(birds, birds / "mine.npz", "--split", "first").exception)
    listed = CliRunner().invoke(cli, ["splits", "export", "--dataset", f"folder:{birds / 'birds'}", "--split",
                                      "default", "--work", str(birds / "work")])
    assert listed.output.strip() == f"wrote {birds / 'work' / 'splits' / 'birds-1.csv'}"


def test_one_backbone_is_refused_before_anything_is_measured(birds):
    done = CliRunner().invoke(cli, ["splits", "compare", "--backbones", "conv4,conv4", "--dataset",
                                    f"folder:{birds / 'birds'}", "--work", str(birds / "work")])
    assert "at least two backbones, not of conv4 alone" in str(done.exception)
    assert not (birds / "work" / "cache").exists()


def test_a_whole_ladder_is_cut_from_one_file_and_seeds_have_theirs(birds):
    ids, x = sent(train=True)
    for seed in (0, 1):
        np.savez(birds / f"mine-{seed}.npz", embeddings=x + seed, ids=ids)
    result = run(birds, birds / "mine-{seed}.npz", "--split", "all", "--seed", "0-1")
    assert result.exit_code == 0, result.output + repr(result.exception)
    frame = records.collect(birds / "work" / "runs")
    home = birds / "work" / "runs" / "birds"
    assert result.output.splitlines()[-1] == f"6 records in {home} (submitted)", "such a ladder is not packed"
    assert home.is_dir()
    made = [path for path in home.rglob("record.json")]
    for path in made:
        facts = json.loads(path.read_text())
        facts["split"]["pinned"] = {"name": "cub@v1", "hash": "0" * 64}
        path.write_text(json.dumps(facts))
    assert evaluate_command._written(made) == f"6 records in {home} (submitted); `oodml submit PACK` packs them"
    assert sorted(zip(frame["split"], frame["seed"])) == [(s, k) for s in (1, 2, 3) for k in (0, 1)]
    assert set(frame["method"]) == {"mine"}
    whole = frame[(frame["split"] == 3) & (frame["seed"] == 0)].iloc[0]
    alone = run(birds, birds / "mine-0.npz", "--split", "3", "--name", "alone")
    assert f"recall@1     {100 * whole['recall@1']:6.2f}" in alone.output


def test_the_split_whose_images_are_not_all_there_is_named(birds):
    ids, x = sent()
    np.savez(birds / "one.npz", embeddings=x, ids=ids)
    error = str(run(birds, birds / "one.npz", "--split", "all").exception)
    assert error.startswith("split 2: 20 of 20 test images have no embedding")
    assert "--split ID" in error


def test_a_file_for_each_split(birds):
    for split, classes in ((1, range(4, 8)), (2, range(4)), (3, range(6, 8))):
        ids = [f"c{c}/{i}.png" for c in classes for i in range(5)]
        x = np.random.default_rng(split).normal(size=(len(ids), 6))
        np.savez(birds / f"own-{split}.npz", embeddings=x, ids=ids)
        if split == 3:
            x[0, 0] = np.nan
            np.savez(birds / "bad-3.npz", embeddings=x, ids=ids)
        else:
            np.savez(birds / f"bad-{split}.npz", embeddings=x, ids=ids)
    bad = run(birds, birds / "bad-{split}.npz", "--split", "all")
    assert "NaN" in str(bad.exception)
    assert not (birds / "work" / "runs").exists(), "the splits that were sound are not written either"
    assert run(birds, birds / "own-{split}.npz", "--split", "all").exit_code == 0
    assert len(records.collect(birds / "work" / "runs")) == 3


CARD = {"method": "mine", "paper": "https://example.org/paper", "code": "https://example.org/code",
        "backbone": "resnet50", "pretraining_data": "ImageNet-1k", "training_data": "birds", "extra_data": "none",
        "hardware": "one H200", "contact": "me@example.org", "licence": "CC BY 4.0"}


@pytest.mark.parametrize("ending", ["toml", "yaml"])
def test_a_card_names_method_and_backbone(birds, ending):
    pytest.importorskip("yaml")
    pair = "{} = \"{}\"" if ending == "toml" else "{}: \"{}\""
    (birds / f"card.{ending}").write_text("\n".join(pair.format(*item) for item in CARD.items()))
    ids, x = sent()
    np.savez(birds / "other-name.npz", embeddings=x, ids=ids)
    result = run(birds, birds / "other-name.npz", "--card", str(birds / f"card.{ending}"))
    assert result.exit_code == 0, result.output + repr(result.exception)
    (path,) = birds.glob("work/runs/birds/1/mine/*/record.json")
    record = records.read(path)
    assert (record["backbone"]["name"], record["provenance"]["card"]) == ("resnet50", CARD)


@pytest.mark.parametrize(("change", "words"), [
    ({"method": "margin"}, "a method of this suite"), ({"method": "../x"}, "no name"),
    ({"papr": "x"}, "did you mean 'paper'"),
    ({"contact": ""}, "1 to 300"), ({"contact": "x" * 301}, "1 to 300"), ({"code": "javascript:alert(1)"}, "https://"),
    ({"hardware": "a\u202eb"}, "control characters"), ({"licence": None}, "lacks 'licence'")])
def test_what_a_card_may_not_say(birds, change, words):
    card = {key: value for key, value in (CARD | change).items() if value is not None}
    (birds / "card.toml").write_text("\n".join(f'{key} = "{value}"' for key, value in card.items()))
    np.savez(birds / "a.npz", embeddings=sent()[1], ids=sent()[0])
    result = run(birds, birds / "a.npz", "--card", str(birds / "card.toml"))
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not (birds / "work" / "runs").exists()


def test_what_a_record_is_compared_with_is_told_by_row(tmp_path: Path) -> None:
    """Seeds of a row are averaged; another length, protocol or network of the method is another row."""
    for method, seed, score, overrides in (("mine", 0, 0.9, {}), ("margin", 0, 0.3, {}), ("margin", 1, 0.5, {}),
                                           ("margin", 2, 0.8, {"epochs": [3, 9], "backbone": ["a", "b"]})):
        record = make_record("cars", 1, method, seed, score, backbone={"name": "conv4", "weights": None},
                             protocol={"name": "demo"})
        record["provenance"]["overrides"] = overrides
        records.write(tmp_path / "1" / method / f"s{seed}-x", record)
    assert evaluate_command._beside(tmp_path / "1" / "mine" / "s0-x" / records.RECORD) == (
        "compared with 2 rows on split 1 of cars: recall@1 margin (demo, epochs=9, conv4) 80.00, "
        "margin (demo, conv4) 40.00; `oodml report` ranks them")

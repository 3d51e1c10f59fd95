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
from click.testing import CliRunner
from PIL import Image

from benchmark.cli import cli
from benchmark.commands import evaluate as evaluate_command
from benchmark.metrics.clustering import KMEANS
from benchmark.utils.errors import UserError
from reports import records
from tests.birds import recall_at_1, run, sent
from tests.sample_records import make_record


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


def test_the_default_split_by_its_name(birds):
    np.savez(birds / "mine.npz", embeddings=sent()[1], ids=sent()[0])
    by_name = run(birds, birds / "mine.npz", "--split", "default")
    assert by_name.exit_code == 0, by_name.output + repr(by_name.exception)
    assert by_name.output == run(birds, birds / "mine.npz").output
    assert "--split first: write numbers" in str(run(birds, birds / "mine.npz", "--split", "first").exception)
    listed = CliRunner().invoke(cli, ["splits", "export", "--dataset", f"folder:{birds / 'birds'}", "--split",
                                      "default", "--work", str(birds / "work")])
    assert listed.output.strip() == f"wrote {birds / 'work' / 'splits' / 'birds-1.csv'}"


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

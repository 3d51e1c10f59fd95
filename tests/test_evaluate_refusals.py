"""What cannot be scored, and what a card may not say, is one line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from benchmark.cli import cli
from benchmark.utils.errors import UserError
from reports import records
from tests.birds import CARD, run, sent


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
    typo = str(run(birds, birds / "none-{sed}.npz").exception)
    assert "{sed} stands for nothing; {split} and {seed} stand" in typo
    np.savez(birds / "list.npz", embeddings=x, ids=ids)
    np.save(birds / "mine.npy", x)
    no_list = run(birds, birds / "mine.npy", "--ids", str(birds / "list.npz"))
    assert "it is no list; ids are txt" in str(no_list.exception)
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


def test_one_backbone_is_refused_before_anything_is_measured(birds):
    done = CliRunner().invoke(cli, ["splits", "compare", "--backbones", "conv4,conv4", "--dataset",
                                    f"folder:{birds / 'birds'}", "--work", str(birds / "work")])
    assert "at least two backbones, not of conv4 alone" in str(done.exception)
    assert not (birds / "work" / "cache").exists()


def test_the_split_whose_images_are_not_all_there_is_named(birds):
    ids, x = sent()
    np.savez(birds / "one.npz", embeddings=x, ids=ids)
    error = str(run(birds, birds / "one.npz", "--split", "all").exception)
    assert error.startswith("split 2: 20 of 20 test images have no embedding")
    assert "--split ID" in error


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

"""Protocols: values of the papers, overrides, and mistakes."""

from __future__ import annotations

import dataclasses
import os
import re
import sys

import pytest

import methods
from benchmark import cli, datasets
from benchmark.config import protocol
from benchmark.data.transform import NAMED, Transform
from benchmark.utils.errors import UserError
from tests import tiny_sweep

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_the_oodml_protocol_is_the_papers() -> None:
    p = protocol.load("oodml")
    assert (p.backbone, p.dim, p.lr, p.weight_decay, p.batch_size, p.epochs) == ("resnet50", 512, 1e-5, 4e-4, 112, 200)
    assert (p.size, p.resize, p.frozen_norm, p.seeds) == (224, 256, "statistics", 5)


def test_the_other_protocols_are_their_papers() -> None:
    r = protocol.load("revisiting")
    assert (r.dim, r.epochs, r.batches, r.lr, r.weight_decay) == (128, 150, "spc-2", 1e-5, 4e-4)
    assert protocol.load("revisiting", dataset="sop").epochs == 100
    u = protocol.load("uml")
    assert (u.backbone, u.dim, u.optimiser, u.batch_size, u.epochs, u.lr) == ("vit_small", 128, "adamw", 720, 100, 3e-5)
    assert (u.batches, protocol.load("uml", tags=("ranking",)).batches) == ("random", "spc-4")
    assert protocol.load("uml", tags=("parameter-efficient",)).lr == 1e-4
    c = protocol.load("crt")
    assert (c.backbone, c.size, c.batches, c.batch_size, c.lr) == ("mit_b2", 227, "spc-5", 80, 3e-5)
    assert protocol.load("crt", dataset="inshop").batch_size == 180


def test_a_list_may_be_empty_but_not_a_range() -> None:
    assert protocol.load("uml", tags=("parameter-efficient",), overrides={"milestones": ""}).milestones == ()
    with pytest.raises(UserError, match="scale"):
        protocol.load("uml", overrides={"scale": ""})


def test_a_method_on_a_dataset_has_the_last_word() -> None:
    warmups = [protocol.load("oodml", dataset=d, method=m).warmup
               for d, m in (("sop", "proxyanchor"), ("cub", "proxyanchor"), ("sop", "margin"))]
    assert warmups == [1, 0, 0]


@pytest.mark.parametrize("name", NAMED)
def test_an_augmentation_brings_its_own_size_unless_one_is_given(name: str) -> None:
    assert protocol.load("oodml", overrides={"augmentation": name}).size == Transform.named(name).size
    assert protocol.load("oodml", overrides={"augmentation": name, "size": "96"}).size == 96


def test_an_augmentation_that_comes_has_its_size_from_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMED, "small", {"size": 128})
    assert protocol.load("oodml", overrides={"augmentation": "small"}).transform().size == 128
    unknown = protocol.load("oodml", overrides={"augmentation": "bas"})
    with pytest.raises(UserError, match="did you mean 'base'"):
        unknown.transform()


def test_tables_of_datasets_methods_and_tags_replace_general_keys(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('backbone="conv4"\ndim=8\nepochs=3\nbatch_size=4\nlr=0.1\nweight_decay=0.0\n'
                    "[dataset.sop]\nepochs=5\n[tag.slow]\nlr=0.01\n[method.puma]\nlr=0.001\ndim=9\n")
    load = lambda **k: protocol.load(str(path), **k)  # noqa: E731
    assert load().epochs == 3
    assert load(dataset="sop").epochs == 5
    assert load(tags=("slow",)).lr == 0.01
    # the method's own table is the last word of the file, --set the last of all; a base objective does not hide it
    puma = load(tags=("slow",), method="puma:margin", overrides={"dim": "10"})
    assert (puma.lr, puma.dim) == (0.001, 10)


GENERAL = 'backbone="conv4"\ndim=8\nepochs=3\nbatch_size=4\nlr=0.1\nweight_decay=0.0\n'


@pytest.mark.parametrize(("text", "words"), [
    ("[method.margn]\nlr=0.2", "[method.margn] changes nothing: there is no method 'margn' (did you mean 'margin'?)"),
    ("[method.Proxy-Anchor]\nlr=0.2", "did you mean 'proxyanchor'"),
    ("[dataset.glyphs-mni]\nlr=0.2", "there is no dataset 'glyphs-mni' (did you mean 'glyphs-mini'?)"),
    ("[both.cuub.margin]\nlr=0.2", "did you mean 'cub'"),
    ("[both.cub.amrgin]\nlr=0.2", "did you mean 'margin'"),
    ("[settings.margn]\nbeta=1.0", "there is no method or tag 'margn'"),
    ("[settings.rankng]\nbeta=1.0", "did you mean 'ranking'"),
    ("[tag.rankng]\nlr=0.2", "there is no tag 'rankng' (did you mean 'ranking'?)"),
    ("[method.margin]\nlrr=0.2", "no key 'lrr' (did you mean 'lr'?)"),
    ("[methods.margin]\nlr=0.2", "no key 'methods' (did you mean 'method'?)"),
    ("[dataset]\nlr=0.2", "dataset.lr is no table; write [dataset.NAME] above its keys"),
    ("[both.cub]\nlr=0.2", "write [both.DATASET.METHOD] above its keys"),
    ("[base.cub]\nbeta=0.2", "base.cub.beta is no table; write [base.DATASET.METHOD] above its keys"),
    ("[base.diva]\nlimit={value=2.0}", "base.diva.limit is no table; write [base.DATASET.METHOD] above its keys"),
    ("[base.alll.diva]\nlimit=2.0", "did you mean 'all'"),
    ("[base.cuub.diva]\nlimit=2.0", "did you mean 'cub'"),
    ("[base.all.dva]\nlimit=2.0", "there is no method 'dva' (did you mean 'diva'?)"),
    ("[base.all.margin]\nlimit=2.0", "[base.all.margin] changes nothing: margin stands on no other objective"),
    ("tag = 'ranking'", "tag = 'ranking' is no table"),
])
def test_a_table_that_would_change_nothing_is_refused(tmp_path, text: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GENERAL + text)
    with pytest.raises(UserError, match=re.escape(words)):
        protocol.load(str(path), dataset="glyphs-mini" if "glyphs" in text else "cub", method="margin")


def test_tables_of_plugins_and_datasets_of_one_s_own_are_not(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    tables = ("method.my-margin", "method.margin2", "method.softplus-triplet", "dataset.birds", "dataset.cub-small",
              "both.birds.my-margin", "tag.mine", "settings.mine", "settings.regularised", "dataset.cubs")
    path.write_text(GENERAL + "".join(f"[{name}]\nlr=0.2\n" for name in tables))
    assert protocol.load(str(path), dataset="cubs", method="margin").lr == 0.2
    assert protocol.load(str(path), dataset="cars", method="margin").lr == 0.1
    with pytest.raises(UserError, match="did you mean 'cub'"):
        protocol.load(str(path), dataset="cub", method="margin")


def test_a_protocol_can_be_shown_without_the_plug_in_that_it_names(tmp_path, capsys) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GENERAL + "[method.margin-x]\nlr=0.2\n[method.margn]\nlr=0.3\n")
    cli.main(["protocols", "show", str(path)])
    assert "margin-x" in capsys.readouterr().out


def test_a_tag_changes_settings_of_those_that_have_them(tmp_path) -> None:
    """A plug-in may have the tag of a family and other settings."""
    with tiny_sweep.registry_as_before():
        @methods.register("my-tuning", family="test", tags=["parameter-efficient"])
        class Mine(methods.Objective):
            """It has no setting of that name."""

        path = tmp_path / "mine.toml"
        path.write_text(GENERAL + "[settings.parameter-efficient]\nrate = 5.0\n")
        assert protocol.settings_of(str(path), methods.get("my-tuning")) == {}
        assert protocol.settings_of(str(path), methods.get("puma")) == {"rate": 5.0}


@pytest.mark.parametrize("name", protocol.names())
def test_tables_of_the_suite_are_for_what_there_is(name: str) -> None:
    names = methods.names()
    tags = {tag for one in names for tag in methods.get(one).kinds}
    table = tomllib.loads(protocol.path_of(name).read_text())
    both, base = table.get("both", {}), table.get("base", {})
    assert {*table.get("dataset", {}), *both} <= {*datasets.names()}
    assert {*base} <= {*datasets.names(), protocol.EVERY}
    for method, changes in ((method, keys) for those in base.values() for method, keys in those.items()):
        below = methods.get(method).base
        assert below is not None
        below.settings(**{key: entry["value"] for key, entry in changes.items()})
    assert {*table.get("method", {}), *(method for those in both.values() for method in those)} <= {*names}
    assert {*table.get("tag", {})} <= tags
    assert {*table.get("settings", {})} <= {*names, *tags}


def test_an_unknown_key_is_told_a_command_that_lists_all(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p1.toml"
    path.write_text(GENERAL + "epoch=3")
    with pytest.raises(UserError) as caught:
        protocol.load(str(path))
    (command,) = re.findall("`oodml (.*)`", str(caught.value))
    cli.main(command.split())
    out = capsys.readouterr().out
    assert all(key in out for key in protocol.FIELDS if key != "name")


def test_steps_per_epoch_is_told_to_be_a_cap(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["protocols", "show", "demo"])
    assert re.search(r"steps_per_epoch +70 +at most so many batches an epoch; 0: all", capsys.readouterr().out)


@pytest.mark.parametrize("name", protocol.names())
def test_every_protocol_of_the_suite_loads_and_says_where_its_values_come_from(name: str) -> None:
    assert protocol.load(name).name == name
    assert protocol.summary(name)
    for line in protocol.explain(name):
        assert line.source or name == "demo", f"{name}: '{line.table} {line.key}' does not say where it comes from"


def test_a_value_may_stand_alone_or_with_its_source(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    sourced = 'size = { value = 32, source = "the drawings" }'
    path.write_text(f"{GENERAL}{sourced}\n[settings.margin]\nbeta = {{ value = 1.0 }}")
    sources = {line.key: (line.value, line.source) for line in protocol.explain(str(path))}
    assert (sources["size"], sources["dim"], sources["resize"]) == ((32, "the drawings"), (8, ""), (256, "default"))
    assert protocol.settings_of(str(path), methods.get("margin")) == {"beta": 1.0}
    path.write_text(GENERAL + sourced.replace("source", "sorce"))
    with pytest.raises(UserError, match="size has value, sorce; write"):
        protocol.load(str(path))


def test_a_file_is_read_again_once_it_has_changed(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    for epochs in (3, 4):
        path.write_text(GENERAL.replace("epochs=3", f"epochs={epochs}"))
        os.utime(path, (epochs, epochs))
        assert protocol.load(str(path)).epochs == epochs


@pytest.mark.parametrize(("overrides", "words"), [
    ({"epoch": "3"}, "did you mean 'epochs'"),
    ({"epochs": "many"}, "epochs = 'many': .*integer"),
    ({"epochs": 2.5}, "epochs = 2.5: .*integer"),
    ({"epochs": True}, "epochs = true: .*number"),
    ({"lr": "-1"}, "lr = '-1': .*greater than or equal to 0"),
    ({"head_rate": "-1"}, "head_rate = '-1': .*greater than or equal to 0"),
    ({"frozen_norm": "perhaps"}, "frozen_norm = 'perhaps': .*'statistics', 'no' or 'all'"),
    ({"frozen_norm": "stat"}, "did you mean 'statistics'"),
    ({"validation": "perhaps"}, "validation = 'perhaps': .*boolean"),
    ({"precision": "fp16"}, "precision = 'fp16': .*'auto', 'fp32', 'tf32' or 'bf16'"),
    ({"optimiser": "adm"}, "did you mean 'adam'"),
    ({"scale": "0.5"}, "scale.1"),
    ({"scale": "0.5,0.7,1"}, "scale = .*at most 2"),
    ({"milestones": "soon"}, "milestones.0 = 'soon': .*integer"),
    ({"lr": "nan"}, "finite"),
    ({"milestones": "2", "cosine": "0.1"}, "fall by one of them"),
    ({"compile": False}, "compile = False: .*'auto', 'yes', 'graphs' or 'no'"),
])
def test_a_wrong_key_or_value_is_named(overrides: dict, words: str) -> None:
    with pytest.raises(UserError, match=words.replace("(", r"\(")):
        protocol.load("demo", overrides=overrides)


def test_an_unknown_protocol_suggests_the_near_one() -> None:
    with pytest.raises(UserError, match="did you mean 'oodml'"):
        protocol.load("oodm")


@pytest.mark.parametrize("command", [["protocols", "show"], ["studies", "show"], ["plan", "--study"]])
def test_a_path_to_nothing_is_called_one(command: list[str], tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").touch()
    for name, words in ((str(tmp_path / "nope.toml"), "there is no such file"), ("oodm.toml", "there is no such file"),
                        ("./oodm", "there is no such file"), (str(tmp_path / "mine.txt"), "must end in .toml")):
        with pytest.raises(SystemExit):
            cli.main([*command, name])
        error = capsys.readouterr().err
        assert f"{name}: " in error
        assert words in error
        assert "did you mean" not in error


def test_a_broken_file_is_named_with_its_line(tmp_path) -> None:
    (tmp_path / "broken.toml").write_text("epochs = = 3\n")
    with pytest.raises(UserError, match="line 1"):
        protocol.load(str(tmp_path / "broken.toml"))


def test_a_file_that_is_no_text_is_named(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes("# Fréchet\nepochs = 3\n".encode("latin-1"))
    for words in (["protocols", "show", str(path)], ["studies", "show", str(path)], ["run", "--study", str(path)]):
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        assert caught.value.code == 2
        error = capsys.readouterr().err
        assert str(path) in error
        assert "UTF-8" in error


def test_an_empty_file_is_told_what_it_lacks(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.toml").touch()
    with pytest.raises(SystemExit):
        cli.main(["protocols", "show", str(tmp_path / "empty.toml")])
    assert "missing backbone" in capsys.readouterr().err


def test_precision_counts_as_it_is_written() -> None:
    auto, exact = (protocol.load("demo", overrides={"precision": p}).identity() for p in ("auto", "fp32"))
    assert auto == protocol.load("demo").identity()
    assert auto != exact


@pytest.mark.parametrize("name", protocol.names())
def test_show_tells_every_key_its_meaning_and_its_source(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["protocols", "show", name])
    out = capsys.readouterr().out
    for key, field in protocol.FIELDS.items():
        if key != "name":
            assert key in out
            assert field.metadata["meaning"] in out
    assert protocol.summary(name) in out
    for source in re.findall('source = "(.*)" }', protocol.path_of(name).read_text()):
        assert source in out


def test_the_list_names_every_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["protocols"])
    out = capsys.readouterr().out
    assert all(name in out for name in protocol.names())
    with pytest.raises(SystemExit):
        cli.main(["protocols", "show", "omdl"])
    assert "did you mean 'oodml'" in capsys.readouterr().err


def test_seeds_are_no_part_of_the_identity() -> None:
    assert protocol.load("demo", overrides={"seeds": "7"}).identity() == protocol.load("demo").identity()


def test_a_run_without_clusters_is_the_run_it_was_before_there_was_the_key() -> None:
    before = protocol.load("demo", overrides={"clustering": "no"}).identity()
    assert "clustering" not in before
    assert protocol.Protocol(**before).clustering == "no"
    assert protocol.load("demo", overrides={"clustering": "last"}).identity()["clustering"] == "last"
    with pytest.raises(UserError, match="'no', 'last' or 'every'"):
        protocol.load("demo", overrides={"clustering": "yes"})


@pytest.mark.parametrize(("key", "value", "message"), [
    ("flip", "2", "less than or equal to 1"), ("decay", "-1", "greater than or equal to 0"),
    ("lr", "inf", "finite"), ("lr", "nan", "finite"),
    ("name", "foo", "called by its file")])
def test_values_that_could_only_train_wrongly_are_refused(key: str, value: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        protocol.load("oodml", overrides={key: value})


def test_settings_of_methods_are_not_explained_by_keys_of_the_same_name() -> None:
    (line,) = [line for line in protocol.explain("demo") if (line.table, line.key) == ("settings.arcface", "scale")]
    assert line.meaning == ""


def test_frozen_norm_has_three_values_and_identities_keep_the_two_old_ones(tmp_path) -> None:
    """Papers and codes: FACTS.md; runs from before `all` are the same runs, and their specs are read."""
    assert {name: protocol.load(name).frozen_norm for name in protocol.names()} == {
        "oodml": "statistics", "revisiting": "all", "crt": "statistics", "uml": "statistics", "glyphs": "statistics",
        "demo": "no", "pretrain": "no", "released": "statistics"}
    assert protocol.load("oodml").identity()["frozen_norm"] is True
    assert protocol.load("demo").identity()["frozen_norm"] is False
    assert protocol.load("revisiting").identity()["frozen_norm"] == "all"
    for name in protocol.names():
        facts = protocol.load(name).identity()
        assert protocol.Protocol(**facts).identity() == facts
    for text, wanted in (("true", "statistics"), ("false", "no"), ('"all"', "all")):
        path = tmp_path / "mine.toml"
        path.write_text(GENERAL + f"frozen_norm = {text}\n")
        assert protocol.load(str(path)).frozen_norm == wanted


def test_settings_of_a_base_on_every_dataset_stand_below_those_of_one(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GENERAL + '[base.all.diva]\nlimit = { value = 2.0, source = "x" }\nbeta = 0.9\n'
                              "[base.cars.diva]\nbeta = 0.6\n")
    diva = methods.get("diva")
    assert protocol.base_settings_of(str(path), diva, "cub") == {"limit": 2.0, "beta": 0.9}
    assert protocol.base_settings_of(str(path), diva, "cars") == {"limit": 2.0, "beta": 0.6}
    assert protocol.base_settings_of(str(path), methods.get("diva:triplet"), "cars") == {}
    assert protocol.base_settings_of(str(path), methods.get("s2sd"), "cars") == {}
    assert protocol.load(str(path), dataset="cars", method="diva").dim == 8
    lines = {(line.table, line.key): (line.meaning, line.source) for line in protocol.explain(str(path))}
    assert lines["base.all.diva", "limit"] == ("", "x")


def test_a_protocol_may_say_only_what_it_changes_of_another(tmp_path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('summary = "mine"\nextends = "oodml"\nlr = 1e-4\n[dataset.sop]\ndim = 64\n')
    mine, theirs = (protocol.load(name, dataset="sop", method="margin") for name in (str(own), "oodml"))
    assert mine == dataclasses.replace(theirs, name="own", lr=1e-4, dim=64)
    assert mine.epochs == 150, "what the other one says of the dataset"
    lines = {(line.table, line.key): line for line in protocol.explain(str(own))}
    assert lines["", "epochs"].source == next(line.source for line in protocol.explain("oodml") if line.key == "epochs")
    further = tmp_path / "further.toml"
    further.write_text('extends = "own.toml"\nepochs = 2\n')
    assert protocol.load(str(further)) == dataclasses.replace(protocol.load(str(own)), name="further", epochs=2)


@pytest.mark.parametrize(("text", "words"), [
    ('extends = "oodm"', "did you mean 'oodml'"), ("extends = 3", "is no name"),
    ('extends = "own.toml"', "leads back"), ('extend = "oodml"', "'extends'")])
def test_what_cannot_be_extended_is_named(tmp_path, text: str, words: str) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(UserError, match=words):
        protocol.load(str(tmp_path / "own.toml"))

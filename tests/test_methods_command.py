"""`oodml methods`: the table, one method in full, plug-ins, and the toy figure with what it is to show."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy.stats import mannwhitneyu

import methods
from benchmark import cli
from benchmark.commands.methods import command
from benchmark.training import toy
from methods import registry
from methods.checks import CHECKS, example
from methods.parts import miners
from tests.test_methods import PLUGIN

ROOT = Path(__file__).resolve().parents[1]


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_table_has_every_method() -> None:
    lines = invoke().splitlines()
    listed = [line.split()[0] for line in lines[1:] if line]
    assert listed[:-1] == methods.names()
    regularised = invoke("--tag", "regularised")
    assert "r-snr" in regularised
    assert "arcface" not in regularised


def test_show_has_formula_settings_sources_and_citation() -> None:
    text = invoke("show", "r-margin")
    for part in ("p_switch", "0.2 (cub 0.4, cars 0.35, sop 0.15)", "Revisiting DML",
                 "beta_rate 50 times lr: 0.0005", "@inproceedings{roth2020revisiting"):
        assert part in text, part
    assert "on the objective triplet" in invoke("show", "manifold-mixup:triplet")


@pytest.mark.parametrize("name", methods.names())
def test_every_method_can_be_shown(name: str) -> None:
    assert methods.get(name).summary in invoke("show", name)


def test_a_plugin_is_listed_and_shown(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN.replace("my-pairs", "listed-pairs"), encoding="utf-8")
    try:
        assert "listed-pairs" in invoke("--plugin", str(file))
        assert "@misc{me}" in invoke("show", "listed-pairs", "--plugin", str(file))
    finally:
        registry._ENTRIES.pop("listed-pairs", None)


@pytest.fixture
def registered() -> Iterator[dict[str, methods.Entry]]:
    """The register, put back as it was."""
    methods.names()  # discovered now, so that what is put back is whole
    before = dict(registry._ENTRIES)
    yield registry._ENTRIES
    registry._ENTRIES.clear()
    registry._ENTRIES.update(before)


def test_the_suite_runs_over_a_plugin_without_pytest(tmp_path: Path) -> None:
    """From a folder of one's own, as an author does who has installed the package and nothing else."""
    (tmp_path / "mine.py").write_text(PLUGIN, encoding="utf-8")
    script = f"""
import sys
sys.modules["pytest"] = None  # any import of it fails
sys.path.insert(0, {str(ROOT)!r})
from benchmark.cli import main
main(["methods", "check", "mine.py", "random"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert last == "all passed"
    assert lines == [f"ok    {name}: {check.replace('_', ' ')}" for name in ("my-pairs", "random") for check in CHECKS]


def test_a_plugin_that_breaks_the_rules_fails_the_suite(tmp_path: Path, registered: dict[str, methods.Entry]) -> None:
    file = tmp_path / "broken.py"
    file.write_text(PLUGIN.replace("my-pairs", "broken").replace("self.settings.weight *", "torch.inf *"),
                    encoding="utf-8")
    done = CliRunner().invoke(command, ["check", str(file)])
    assert done.exit_code == 1
    lines = done.output.splitlines()
    failed = [line for line in lines if line.startswith("FAIL")]
    assert len(lines) == len(CHECKS) + 1
    assert lines[-1] == f"{len(failed)} failed"
    assert "FAIL  broken: gradients are finite: assert torch.isfinite(loss)" in failed
    assert "Traceback" in CliRunner().invoke(command, ["check", "broken", "--traceback"]).output


def test_a_plugin_that_returns_no_loss_or_ends_itself_is_told_so(tmp_path: Path, registered: dict[str, methods.Entry],
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    for name, instead, why in (("lossless", "loss = ", ".forward returns NoneType; a loss is a scalar tensor"),
                               ("ending", "raise SystemExit(3)\n        return ", "SystemExit: 3")):
        text = PLUGIN.replace("my-pairs", name).replace("return self.settings", f"{instead}self.settings")
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        with pytest.raises(SystemExit) as ended:
            cli.main(["methods", "check", str(tmp_path / f"{name}.py")])
        assert ended.value.code == 1
        assert f"FAIL  {name}: gradients are finite: " in (out := capsys.readouterr().out)
        assert why in next(line for line in out.splitlines() if "gradients are finite" in line)
    (tmp_path / "gone.py").write_text("raise SystemExit('bye')", encoding="utf-8")
    with pytest.raises(methods.MethodError, match=r"plug-in .*gone\.py, line 1: SystemExit: bye"):
        methods.load_plugin(tmp_path / "gone.py")


TEACHER = '''
import copy
import torch
from methods import Method, Step, register, setting

@register("my-teacher", family="regularised", base="margin", cite="@misc{me}")
class Teacher(Method):
    """Near to a copy of the network that follows it.

        L = L_base + mean |phi - phi_T|^2
    """
    def __init__(self, backbone, objective, dim, settings=None):
        super().__init__(backbone, objective, dim, settings)
        self.teacher = copy.deepcopy(self.backbone).requires_grad_(False)

    def step(self, images, labels):
        loss, embeddings = super().step(images, labels)
        return Step(loss, embeddings)

    @torch.no_grad()
    def after_step(self):
        for slow, fast in zip(self.teacher.parameters(), self.backbone.parameters()):
            slow.lerp_(fast, 0.1)
'''


@pytest.mark.parametrize(("old", "new", "says"), [
    ("", "", "moved though no group has it: what a method itself moves is a buffer (methods.layers.momentum.Momentum"),
    ("return Step(loss, embeddings)", "return loss", "step returns Tensor; it is to return Step(loss, embeddings)"),
    ("return Step", "self.late = self.late if hasattr(self, 'late') else torch.nn.Linear(2, 2)\n        return Step",
     "late.bias and 1 more came while it trained: make it in __init__"),
    ("regularised", "regularisation", "family 'regularisation' is none of aggregation, auxiliary,")])
def test_what_an_author_of_a_teacher_gets_wrong_is_told_with_what_mends_it(
        tmp_path: Path, registered: dict[str, methods.Entry], old: str, new: str, says: str) -> None:
    (tmp_path / "teacher.py").write_text(TEACHER.replace(old, new) if old else TEACHER, encoding="utf-8")
    done = CliRunner().invoke(command, ["check", str(tmp_path / "teacher.py")])
    assert done.exit_code == 1
    assert says in done.output


def test_a_step_may_return_a_plain_pair_and_a_teacher_be_kept_as_buffers(
        tmp_path: Path, registered: dict[str, methods.Entry]) -> None:
    """As training takes them apart; the copy that the messages of the suite name passes it."""
    text = TEACHER.replace("return Step(loss, embeddings)", "return loss, embeddings").replace(
        "copy.deepcopy(self.backbone).requires_grad_(False)", "Momentum(self.backbone, 0.9)").replace(
        "import torch", "import torch\nfrom methods.layers.momentum import Momentum", 1)
    head, _, _ = text.partition("        for slow")
    (tmp_path / "teacher.py").write_text(f"{head}        self.teacher.follow(self.backbone)\n", encoding="utf-8")
    assert invoke("check", str(tmp_path / "teacher.py")).splitlines()[-1] == "all passed"


def test_what_cannot_be_checked_is_named(tmp_path: Path) -> None:
    with pytest.raises(methods.MethodError, match=r"no such file"):
        invoke("check", str(tmp_path / "absent.py"))
    with pytest.raises(methods.MethodError, match="did you mean 'margin'"):
        invoke("check", "marginn")


def test_the_pictures_of_the_suite_are_glyphs() -> None:
    """Kept in a file; drawn from another version of the fonts they may differ by little."""
    from benchmark import datasets

    index = datasets.get("glyphs-mini").read(Path())  # type: ignore[call-arg]
    images, labels = example.glyphs()
    for label in range(example.CLASSES):
        first = np.flatnonzero(index.labels == label * (len(index.classes) // example.CLASSES))[0]
        drawn = np.asarray(index.open(int(first)).convert("RGB").resize((example.SIDE, example.SIDE)), np.float32)
        kept = images[labels == label][0].permute(1, 2, 0).numpy()
        assert np.abs(drawn / 127.5 - 1 - kept).mean() < 0.05


def test_an_installed_package_that_breaks_takes_no_other_method_with_it(tmp_path: Path) -> None:
    (tmp_path / "broken_methods.py").write_text("raise RuntimeError('made to fail')\n", encoding="utf-8")
    facts = tmp_path / "broken-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n", encoding="utf-8")
    (facts / "entry_points.txt").write_text("[oodml.methods]\nall = broken_methods\n", encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import methods; print(len(methods.names()))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) == len(methods.names())
    assert "package broken are left out: broken_methods: RuntimeError: made to fail" in found.stderr


@pytest.mark.parametrize(("content", "line", "text"), [
    ("\nimport no_such_module\n", 2, "ModuleNotFoundError: No module named 'no_such_module'; put it beside the file"),
    ("x = 1\ndef f(:\n", 2, "SyntaxError: invalid syntax; correct the file"),
    ("from methods import register\n\n@register('x')\nclass X: pass\n", 3, "TypeError: register"),
    ("raise ValueError('of two\\nlines')", 1, "ValueError: of two lines; correct the file"),
])
def test_a_plugin_that_does_not_run_is_one_line(tmp_path: Path, content: str, line: int, text: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(content, encoding="utf-8")
    with pytest.raises(methods.MethodError) as caught:
        methods.load_plugin("mine.py")
    assert str(caught.value).startswith(f"plug-in mine.py, line {line}: {text}")
    assert len(str(caught.value).splitlines()) == 1
    assert type(caught.value.__cause__).__name__ in text


def test_a_plugin_is_a_python_file(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(methods.MethodError, match=r"must end in \.py"):
        methods.load_plugin(tmp_path / "mine.txt")
    (tmp_path / "all_of_mine.py").mkdir()
    with pytest.raises(methods.MethodError, match=r"all_of_mine\.py: that is a folder; give the Python file in it"):
        methods.load_plugin(tmp_path / "all_of_mine.py")


def outcomes(example: str, objective: str, seeds: int) -> tuple[list[toy.Outcome], list[toy.Outcome]]:
    plain, switched = ([toy.train(example, p, objective=objective, seed=s) for s in range(seeds)] for p in (0.0, 0.4))
    return plain, switched


def larger(more: list[float], less: list[float]) -> float:
    """The p-value of a rank test: how likely it is that the first are not the larger ones."""
    return float(mannwhitneyu(more, less, alternative="greater").pvalue)


def test_switching_keeps_training_lines_from_collapsing_and_the_spectrum_flatter() -> None:
    """Appendix E's contrastive loss on the diagonal lines."""
    plain, switched = outcomes("diagonal", "contrastive", 10)
    assert np.mean([o.spread for o in switched]) > 2 * np.mean([o.spread for o in plain])
    assert larger([o.spread for o in switched], [o.spread for o in plain]) < 0.001
    assert larger([float(o.spectrum[1]) for o in switched], [float(o.spectrum[1]) for o in plain]) < 0.05


@pytest.mark.slow
def test_switching_separates_test_lines_that_differ_where_no_training_line_does() -> None:
    """Margin loss on the vertical lines: with switching the test lines lie twice as far apart. One seed says nothing
    here and ten say little (p = 0.06), hence twenty."""
    plain, switched = outcomes("vertical", "margin", 20)
    assert np.mean([o.gap for o in switched]) > 1.8 * np.mean([o.gap for o in plain])
    assert larger([o.gap for o in switched], [o.gap for o in plain]) < 0.01
    assert np.mean([o.spread for o in switched]) > 4 * np.mean([o.spread for o in plain])


@pytest.mark.slow
def test_the_printed_probability_cannot_show_the_effect() -> None:
    """Appendix E's p = 0.001: how many tuples of a training it switches, counted, and what that does over seeds."""
    torch.manual_seed(0)
    labels = torch.arange(4).repeat_interleave(6)
    triplets = miners.random(torch.randn(24, 2), labels)
    changed = [int((miners.switch(triplets, toy.PRINTED).negative != triplets.negative).sum()) for _ in range(20 * 200)]
    assert sum(changed) / 20 == pytest.approx(200 * 24 * 0.001, abs=1.5)
    plain, printed, half = ([toy.train("vertical", p, seed=seed).spread for seed in range(5)]
                            for p in (0.0, toy.PRINTED, 0.4))
    assert mannwhitneyu(plain, printed).pvalue > 0.2
    assert 0.6 < np.mean(printed) / np.mean(plain) < 1.6
    assert min(half) > 2 * max(*plain, *printed)


@pytest.mark.parametrize("p", [0.0, 0.001, 0.3])
def test_switching_only_slows_the_collapse_under_the_contrastive_loss(p: float) -> None:
    """Two positives nearer than gamma: the mean pull over many draws is 1 - 2p, towards each other for p < 1/2."""
    points = torch.tensor([[1.0, 0.0], [0.9998, 0.02], [-1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    count = 20_000
    triplets = miners.Triplets(*(torch.full((count,), i) for i in range(3)), torch.ones(count, dtype=torch.bool))
    torch.manual_seed(0)
    toy.OBJECTIVES["contrastive"]().loss(points, torch.tensor([0, 0, 1]), miners.switch(triplets, p)).backward()
    towards = (points[1] - points[0]).detach()
    pull = -float(points.grad[0] @ towards / towards.norm())  # type: ignore[index]
    assert pull == pytest.approx(1 - 2 * p, abs=0.02)


def test_the_toy_does_not_hang_on_the_last_bit() -> None:
    """Another processor rounds otherwise: weights moved by a few last bits must end in the same figure."""
    network = toy.network
    straight = toy.train("vertical", 0.4, steps=200)

    def moved() -> torch.nn.Module:
        model = network()
        with torch.no_grad():
            for weights in model.parameters():
                weights.mul_(1 + 1e-15)
        return model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy, "network", moved)
        assert abs(toy.train("vertical", 0.4, steps=200).gap - straight.gap) < 1e-3


def test_the_toy_figure_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = toy.train
    monkeypatch.setattr(toy, "train", lambda *a, **k: train(*a, **k, steps=2))
    out = tmp_path / "toy.svg"
    assert "second singular value" in invoke("toy", "--out", str(out))
    assert out.read_bytes()[:5] == b"<?xml"


def test_a_probability_of_the_toy_is_one(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["toy", "--p", "3", "--out", str(tmp_path / "toy.png")])
    assert done.exit_code == 2
    assert "0<=x<=1" in done.output

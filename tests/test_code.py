"""What a run's identity says of code: nothing of the suite's own methods, the source of a plug-in's."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import sys
import warnings
from pathlib import Path

import pytest

import methods
from benchmark.config import protocol
from benchmark.config.spec import RunSpec, differences
from benchmark.runs import status
from benchmark.runs.locks import Lock
from methods import registry
from methods.registry import sources
from reports import records
from tests.sample_records import make_record

PLUGIN = '''
from methods import Objective, register
import beside_of_mine

@register("mine-{name}", family="ranking")
class Mine(Objective):
    """A loss."""

    def forward(self, embeddings, labels):
        return embeddings.sum() * {factor}
'''


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    registry.discover()
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_of_mine.py").write_text("import further_off\nfrom mine_parts.inner import y\n")
    (tmp_path / "mine_parts").mkdir()
    (tmp_path / "mine_parts" / "__init__.py").write_text("")
    (tmp_path / "mine_parts" / "inner.py").write_text("from .innermost import y\n")
    (tmp_path / "mine_parts" / "innermost.py").write_text("y = 1\n")
    (tmp_path / "further_off.py").write_text("x = 1\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("beside_of_mine", "further_off", "mine_parts",
                                                                  "oodml_plugin_mine"))]:
        del sys.modules[name]


def code(home: Path, factor: float = 1.0) -> str:
    (home / "mine.py").write_text(PLUGIN.format(name="x", factor=factor))
    methods.load_plugin(home / "mine.py")
    return methods.code_of("mine-x")


def test_the_source_of_a_plugin_and_of_what_lies_beside_it_counts(home: Path) -> None:
    first = code(home)
    assert len(first) == 64
    assert code(home) == first
    assert code(home, 2.0) != first
    (home / "further_off.py").write_text("x = 2\n")
    assert code(home) != first
    (home / "further_off.py").write_text("x = 1\n")
    (home / "unrelated.py").write_text("y = 1\n")
    assert code(home) == first
    for part in ("__init__", "innermost"):
        before = (home / "mine_parts" / f"{part}.py").read_text()
        (home / "mine_parts" / f"{part}.py").write_text("y = 2\n")
        assert code(home) != first, part
        (home / "mine_parts" / f"{part}.py").write_text(before)
    assert methods.code_of("s2sd:mine-x") == first
    assert [methods.code_of(name) for name in ("margin", "s2sd", "s2sd:margin")] == ["", "", ""]


def test_a_module_of_another_folder_is_not_taken_for_the_one_beside(home: Path) -> None:
    code(home)
    other = home / "other"
    other.mkdir()
    (other / "further_off.py").write_text("x = 3\n")
    (other / "mine.py").write_text(PLUGIN.format(name="z", factor=1.0).replace("beside_of_mine", "further_off"))
    with pytest.raises(methods.MethodError, match=r"`import further_off` gives .*rename"):
        methods.load_plugin(other / "mine.py")


def test_a_plugin_given_by_a_link_has_the_modules_beside_the_file_itself(home: Path) -> None:
    first = code(home)
    (home / "links").mkdir()
    (home / "links" / "mine_too.py").symlink_to(Path("..") / "mine.py")
    (home / "here").symlink_to(home, target_is_directory=True)

    def linked(path: str) -> str:
        registry._ENTRIES.pop("mine-x")
        methods.load_plugin(home / path)
        return methods.code_of("mine-x")

    assert linked("links/mine_too.py") == linked("here/mine.py") == first
    (home / "further_off.py").write_text("x = 2\n")
    assert linked("links/mine_too.py") == linked("here/mine.py") != first


@pytest.mark.parametrize("call", [
    'importlib.import_module("further_off")', 'import_module(name="further_off")', '__import__("further_off")',
    'importlib.import_module("mine_parts.late")', 'importlib.import_module(".late", "mine_parts")',
    'importlib.import_module("..late", package="mine_parts.inner")'])
def test_a_module_imported_by_a_call_counts_though_it_was_not_called_so_far(home: Path, call: str) -> None:
    (home / "beside_of_mine.py").write_text(f"import importlib\nfrom importlib import import_module\n"
                                            f"def later():\n    return {call}\n")
    late = home / "mine_parts" / "late.py" if "late" in call else home / "further_off.py"
    late.write_text("x = 1\n")
    first = code(home)
    assert code(home) == first
    sys.modules["beside_of_mine"].later()
    assert Path(sys.modules["mine_parts.late" if "late" in call else "further_off"].__file__) == late
    assert code(home) == first, "another process may not have come to the call"
    late.write_text("x = 2\n")
    assert code(home) != first
    late.write_text("x = 1\n")
    (home / "beside_of_mine.json").write_text("{}")
    assert code(home) == first, "data do not count"


@pytest.mark.filterwarnings("ignore:.*only known when it runs")
def test_a_relative_name_in_a_call_is_from_where_the_file_lies(home: Path) -> None:
    (home / "mine_parts" / "inner.py").write_text(
        "import importlib\nlate = importlib.import_module('.late', __package__)\ny = 1\n"
        "def other(name):\n    return importlib.import_module(name), __import__(name), importlib.import_module()\n")
    (home / "mine_parts" / "late.py").write_text("x = 1\n")
    first = code(home)
    (home / "mine_parts" / "late.py").write_text("x = 2\n")
    assert code(home) != first


@pytest.mark.parametrize("call", [
    "importlib.import_module('further' + '_off')", "__import__(name)", "import_module(name=f'{name}')",
    "importlib.util.spec_from_file_location('further_off', path)"])
def test_an_import_that_only_running_it_tells_is_warned_of_once(home: Path, call: str) -> None:
    (home / "beside_of_mine.py").write_text(f"import importlib\n\ndef later(name, path):\n    return {call}\n")
    with pytest.warns(UserWarning, match=r"beside_of_mine\.py, line 4: .* not part of a run's identity"):
        first = code(home)
    (home / "further_off.py").write_text("x = 2\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert code(home) == first, "as the warning says"


def test_a_name_that_is_written_out_is_not_warned_of(home: Path) -> None:
    (home / "beside_of_mine.py").write_text("import importlib\nimportlib.import_module('further_off')\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert code(home)


def hash_over(folder: Path, *files: str) -> str:
    """The hash over the sorted hashes of these files."""
    hashes = sorted(hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in files)
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def test_the_suite_beside_a_plugin_is_no_part_of_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a plug-in lies in the root of a checkout, whose files it imports."""
    root = Path(methods.__file__).parents[1]
    assert {root / "oodml.py", root / "benchmark", root / "reports"} <= sources.SUITE
    assert sources.unfollowed(root / "oodml.py"), "it would be warned of"
    monkeypatch.setattr(sources, "SUITE", frozenset({home / "beside_of_mine.py", home / "mine_parts"}))
    (home / "mine.py").write_text("import mine_parts.inner, further_off\n" + PLUGIN.format(name="x", factor=1))
    methods.load_plugin(home / "mine.py")
    assert methods.code_of("mine-x") == hash_over(home, "mine.py", "further_off.py")


@pytest.mark.parametrize("packed", [True, False])
def test_of_an_installed_plugin_its_own_package_counts_and_no_library(home: Path, packed: bool) -> None:
    """Torch lies beside it: it has thousands of files, and parsing them takes minutes."""
    place, name = home / "site-packages", "mine_parts_installed"
    files = [f"{name}/{file}.py" for file in ("loss", "inner/far", "inner/__init__", "__init__")] if packed else [
        f"{name}.py"]
    for file in (*files, "further_off_library/__init__.py", "further_off_library/parts.py", "beside_of_mine.py"):
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text("import further_off_library\n")
    inner = f"from .inner import far\nimport {name}\n" if packed else ""
    (place / files[0]).write_text(f"{inner}from further_off_library import parts\n{PLUGIN.format(name='i', factor=1)}")
    sys.path.insert(0, str(place))
    importlib.import_module(f"{name}.loss" if packed else name)  # as the entry point of a distribution does
    assert methods.code_of("mine-i") == hash_over(place, *files)


def test_the_identity_of_a_plugin_without_such_calls_is_as_it_was(home: Path) -> None:
    """Records of plug-ins have it: the hash over the sorted hashes of its files."""
    files = ["mine.py", "beside_of_mine.py", "further_off.py",
             *(f"mine_parts/{name}.py" for name in ("__init__", "inner", "innermost"))]
    assert code(home) == hash_over(home, *files)


def test_identities_of_the_suites_own_methods_are_as_they_were() -> None:
    spec = RunSpec("cub", "x", 1, "y", "margin", {"beta": 1.2}, {}, protocol.load("oodml"), "w", 0)
    assert "code" not in spec.facts()
    assert RunSpec.of(spec.facts()) == spec
    edited = dataclasses.replace(spec, code="c")
    assert edited.identity != spec.identity
    assert RunSpec.of(edited.facts()) == edited
    assert differences(spec, edited) == ["the source of the plug-in"]


def test_a_run_that_is_done_anew_keeps_its_old_record(tmp_path: Path) -> None:
    for number in (1, 2):
        records.write(tmp_path, make_record(score=0.1 * number))
        assert status.keep_before(tmp_path) == [tmp_path / f"before-{number}-record.json"]
    records.write_failure(tmp_path, {"cause": "x"})
    assert status.keep_before(tmp_path) == [tmp_path / "before-3-failure.json"]
    assert status.keep_before(tmp_path) == []
    assert len(records.scan(tmp_path)[0]) == 0


@pytest.mark.parametrize("damaged", [False, True])
def test_what_was_computed_from_a_run_is_not_taken_for_that_of_the_run_done_anew(damaged: bool, tmp_path: Path) -> None:
    records.write(tmp_path, make_record())
    records.write_failure(tmp_path, {"cause": "an attempt before"})
    computed = ("fewshot.json", "cross.json", "gallery.json", "wise.json", "classes.json")
    for name in computed:
        (tmp_path / name).write_text("{}")
    (tmp_path / "inspect").mkdir()
    (tmp_path / "inspect" / "inspection.json").write_text("{}")
    (tmp_path / "spec.json").write_text("{}")
    if damaged:
        (tmp_path / "record.json").write_text("{")
        (tmp_path / "damaged-1.json").write_text("as an earlier version named it")
    word, number, aside = ("damaged", 2, status.set_aside) if damaged else ("before", 1, status.keep_before)
    kept = [path.name.removeprefix(f"{word}-{number}-") for path in aside(tmp_path)]
    assert set(kept) == {"record.json", "failure.json", "inspect", *computed}
    assert kept[-1] == "record.json"
    assert (tmp_path / f"{word}-{number}-inspect" / "inspection.json").exists()
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(f"{word}-")} == {"spec.json"}
    assert status.look(tmp_path).kind == "missing"
    assert aside(tmp_path) == []


def test_a_run_that_is_done_anew_begins_at_its_first_epoch_and_overwrites_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "checkpoint-00003").mkdir(parents=True)
    (folder / "before-2-record.json").write_text("the first was deleted")
    records.write_failure(folder, {"cause": "x"})
    assert status.look(folder).begun
    assert status.keep_before(folder) == [folder / "before-1-failure.json"]
    assert not status.look(folder).begun
    records.write_failure(folder, {"cause": "y"})
    assert status.keep_before(folder) == [folder / "before-3-failure.json"]
    assert (folder / "before-2-record.json").read_text() == "the first was deleted"
    (folder / "checkpoint-00003").mkdir()
    lock = Lock.take(folder, 0)
    assert lock is not None
    assert status.keep_before(folder) == []
    assert status.look(folder).begun, "a run that is under way keeps what it has saved"


def test_an_odd_failure_or_spec_harms_no_survey(tmp_path: Path) -> None:
    for text in ("[" * 100_000, '{"cause": ""}', "[]", '{"cause": ["x"]}'):
        (tmp_path / "failure.json").write_text(text)
        (tmp_path / "spec.json").write_text(text)
        assert status.look(tmp_path).kind == "failed"
        assert RunSpec.read(tmp_path) is None


def test_two_plugins_of_one_file_name_are_two(home: Path, tmp_path: Path) -> None:
    first = code(home)
    (home / "other").mkdir()
    (home / "other" / "mine.py").write_text(PLUGIN.format(name="y", factor=2.0).replace("import beside_of_mine", ""))
    methods.load_plugin(home / "other" / "mine.py")
    assert methods.code_of("mine-x") == first, "the file of the second is not its own"
    assert methods.code_of("mine-y") != first

"""Pages that are written from the sources when the documentation is built: commands, methods, protocols and more.

mkdocs calls `on_config` and `on_files`. Nothing of these pages is kept in the repository.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import methods  # noqa: E402
import oodml  # noqa: E402
from benchmark.cli import cli  # noqa: E402
from benchmark.config import protocol  # noqa: E402
from docs.formulas import mathml  # noqa: E402


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists the generated pages where the navigation names their folder."""
    made = pages()
    for item in config.nav or []:
        for title, target in item.items() if isinstance(item, dict) else ():
            if isinstance(target, str) and target.endswith("/"):
                inside = [name for name in made if name.startswith(target)]
                item[title] = [f"{target}index.md", *sorted(set(inside) - {f"{target}index.md"})]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Draws the formulas of written pages, which stand in blocks of the language `math`."""
    return re.sub(r"^```math\n(.*?)^```", lambda block: formula(block[1]), markdown, flags=re.M | re.S)


def pages() -> dict[str, str]:
    """Every generated page: its path and its Markdown."""
    executed = Path(os.environ.get("NOTEBOOK", ROOT / "examples/own_data.ipynb"))
    return {**commands(), **all_methods(), **protocols(), "api.md": api(), "changes.md": changes(),
            "own_data.md": notebook(executed), "own_method.md": own_method()}


def cell(text: Any) -> str:
    """Text as it may stand in a table."""
    return re.sub(r"([|*_`\[\]])", r"\\\1", escape(" ".join(str(text).split()), quote=False))


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *(tuple(map(cell, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def commands() -> dict[str, str]:
    """A page for each command, as its parser knows it."""
    context = click.Context(cli, info_name="oodml")
    made, rows = {}, []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        made[f"commands/{name}.md"] = f"# oodml {name}\n\n" + described(command, context, name, 2)
        rows.append(f"| [`oodml {name}`]({name}.md) | {cell(command.get_short_help_str(200))} |")
    made["commands/index.md"] = "# Commands\n\n| command | what it does |\n|---|---|\n" + "\n".join(rows) + "\n"
    return made


def described(command: click.Command, parent: click.Context, name: str, level: int) -> str:
    """Usage, help and options of a command, then those of its subcommands."""
    context = click.Context(command, info_name=name, parent=parent)
    parts = [f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n",
             plain(inspect.cleandoc(command.help or "").replace("\b\n", ""))]
    options = [record for parameter in command.get_params(context)
               if (record := parameter.get_help_record(context)) and record[0] != "-h, --help"]
    if options:
        parts.append(table(("option", "meaning"), options))
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            parts += [f"{'#' * level} {context.command_path} {inner}\n", described(found, context, inner, level + 1)]
    return "\n\n".join(parts) + "\n"


def all_methods() -> dict[str, str]:
    """A page for each method from its docstring, its settings and its citation, and the list by family."""
    made, families = {}, {}
    for name in methods.names():
        entry = methods.get(name)
        file = name.replace("+", "-plus-").replace("-plus--plus-", "-plus-plus")
        made[f"methods/{file}.md"] = method_page(entry)
        families.setdefault(entry.family, []).append(f"| [{name}]({file}.md) | {cell(entry.summary)} |")
    made["methods/index.md"] = "# Methods\n\n" + "\n\n".join(
        f"## {family}\n\n| method | what it is |\n|---|---|\n" + "\n".join(rows)
        for family, rows in sorted(families.items())) + "\n"
    return made


def method_page(entry: methods.Entry) -> str:
    source = Path(inspect.getsourcefile(entry.cls) or "").relative_to(ROOT)
    on = f" on the objective `{entry.base.name}`" if entry.base is not None else ""
    parts = [f"# {entry.name}", prose(inspect.getdoc(entry.cls) or ""),
             f"Family {entry.family}; papers: {', '.join(entry.papers) or 'none of the suite'}; trains "
             f"{escape(entry.trains)}{on}; batches `{entry.batches}`; source `{source}`."]
    fields = dataclasses.fields(entry.cls.Settings)  # type: ignore[attr-defined]
    if fields:
        own = entry.settings()
        parts += ["## Settings", table(("setting", "value", "source", "elsewhere"), [
            (field.name, getattr(own, field.name), field.metadata.get("source", ""), ", ".join(
                f"{name} {value}" for name, value in field.metadata.get("per_dataset", {}).items()))
            for field in fields])]
    if entry.cite:
        parts += ["## Citation", f"```bibtex\n{entry.cite.strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def prose(doc: str) -> str:
    """A docstring as Markdown; lines that are set in are formulas."""
    blocks = re.split(r"((?:^ {4}.*\n?)+)", doc, flags=re.M)
    return "".join(formula(block) if block.startswith("    ") else plain(block) for block in blocks)


def plain(text: str) -> str:
    """Text whose signs < and & are no HTML; what stands in backticks is kept by Markdown itself."""
    return "".join(part if part.startswith("`") else escape(part, quote=False)
                   for part in re.split(r"(`[^`]*`)", text))


def formula(block: str) -> str:
    return "\n" + "\n".join(mathml(line) for line in block.splitlines() if line.strip()) + "\n\n"


def protocols() -> dict[str, str]:
    """A page for each protocol: every key with its value, its meaning and where the value comes from."""
    made, rows = {}, []
    for name in protocol.names():
        parts, lines, place = [f"# {name}", plain(protocol.summary(name))], [], ""
        for line in [*protocol.explain(name), None]:
            if line is None or line.table != place:
                parts.append(table(("key", "value", "meaning", "source"), lines))
                if line is not None:
                    place, lines = line.table, []
                    parts.append(f"## {place}")
            if line is not None:
                source = "the suite's default" if line.source == "default" else line.source
                lines.append((line.key, json.dumps(line.value, default=str), line.meaning, source))
        made[f"protocols/{name}.md"] = "\n\n".join(parts) + "\n"
        rows.append(f"| [{name}]({name}.md) | {cell(protocol.summary(name))} |")
    made["protocols/index.md"] = "# Protocols\n\nHow a study trains. `oodml protocols show NAME` prints the same.\n\n" \
        "| protocol | what it is |\n|---|---|\n" + "\n".join(rows) + "\n"
    return made


def api() -> str:
    """The public names of `import oodml`, each documented where it is defined."""
    public = [getattr(oodml, name) for name, (_, attribute) in sorted(oodml.SOURCES.items()) if attribute]
    found = [f"::: {one.__module__}.{one.__qualname__}" for one in public]
    return "# Python\n\n" + escape((importlib.import_module("oodml").__doc__ or "").partition("\n")[0]) \
        + "\n\n" + "\n\n".join(found) + "\n"


def changes() -> str:
    """The changelog; a line above a list is its heading, and Markdown for pages wants an empty line between them."""
    return re.sub(r"^(\w.*)\n(?=- )", r"**\1**\n\n", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)


def own_method() -> str:
    """The guide that CONTRIBUTING.md has, whose example the tests run."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return "# A method of your own\n" + text.partition("\n## How to add a method\n")[2].partition("\n## ")[0]


def notebook(path: Path) -> str:
    """A notebook as it was executed: its text, its code, and what that printed."""
    parts = []
    for part in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(part["source"])
        parts.append(source if part["cell_type"] == "markdown" else f"```python\n{source}\n```")
        if text := printed(part.get("outputs", [])):
            parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def printed(outputs: list[dict[str, Any]]) -> str:
    """What a terminal would show at the end: progress bars write over themselves, and finished ones are left out."""
    texts = ["".join(output["text"]) if "text" in output else "".join(output["data"]["text/plain"]) + "\n"
             for output in outputs if "text" in output or "text/plain" in output.get("data", {})]
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in "".join(texts).split("\n")]
    return "\n".join(line for line in lines if "%|" not in line).rstrip()

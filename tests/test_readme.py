"""The README and the pages in docs/ say what is there. UPDATE_DOCS=1 writes what is made of the code."""

from __future__ import annotations

import html
import importlib
import json
import os
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
import test_layers
from click.testing import CliRunner

from fsdplint.cli.main import main
from fsdplint.config.options import FORMATS
from fsdplint.config.settings_files import KEYS
from fsdplint.registry.rules import documented_rules
from fsdplint.report import rule_table

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [README, *sorted(DOCS.glob("*.md")), ROOT / "rules" / "README.md"]
START, END = "<!-- rules -->\n", "\n<!-- /rules -->"
FOLDERS = "docs|fixtures|fsdplint|rules|tests"


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script of docs/ as a module."""
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


def same(path: Path, wanted: str) -> None:
    if os.environ.get("UPDATE_DOCS"):
        path.write_text(wanted, encoding="utf-8")
    message = "UPDATE_DOCS=1 pytest tests/test_readme.py writes it"
    assert path.read_text(encoding="utf-8") == wanted, message


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_the_table_of_rules_is_up_to_date() -> None:
    page = DOCS / "rules.md"
    before, rest = page.read_text(encoding="utf-8").split(START)
    _, after = rest.split(END)
    same(page, before + START + rule_table(documented_rules()) + END + after)


def test_the_picture_of_the_layers_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = script("layers", monkeypatch)
    same(DOCS / "pictures" / "layers.svg", layers.picture(test_layers.LAYERS))


def test_the_picture_of_a_finding_is_up_to_date(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pictures = script("pictures", monkeypatch)
    (tmp_path / "train.py").write_text(pictures.example(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    output = CliRunner().invoke(main, ["--no-cache", "train.py"]).stdout
    svg = (DOCS / "pictures" / "finding.svg").read_text(encoding="utf-8")
    shown = html.unescape("".join(re.findall(r"<text [^>]*>([^<]*)</text>", svg)))
    assert "".join(shown.split()).endswith("".join(output.split())), "python docs/pictures.py"
    assert "url(http" not in svg


def test_every_setting_is_explained() -> None:
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    block = re.search(r"```toml\n\[tool\.fsdplint\]\n(.*?)```", text, re.DOTALL)
    assert block is not None
    keys = re.findall(r"^(?:\[tool\.fsdplint\.)?([a-z-]+)(?: =|\])", block.group(1), re.MULTILINE)
    assert set(keys) == set(KEYS)


def test_every_key_of_the_json_format_is_named() -> None:
    program = str(ROOT / "fixtures" / "fsdp1" / "flat_script.py")
    result = CliRunner().invoke(main, ["--no-cache", "--output-format", "json", program])
    finding = json.loads(result.stdout)[0]
    text = (DOCS / "checking.md").read_text(encoding="utf-8")
    named = re.search(r"The keys are\n(.*?)\.\s", text, re.DOTALL)
    assert named is not None
    assert set(re.findall(r"`([a-z_]+)`", named.group(1))) == {*finding, *finding["fix"]}


def test_every_format_is_named() -> None:
    text = (DOCS / "checking.md").read_text(encoding="utf-8")
    section = text.partition("## Output\n")[2].partition("\n## ")[0]
    assert [name for name in FORMATS if f"`{name}`" not in section] == []


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)]+)\)", prose):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, titles), target
    for path in re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", prose):
        assert (ROOT / path).exists(), path


def commands() -> list[str]:
    """Each command of fsdplint that a page shows."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            lines = block.replace("\\\n", " ").splitlines()
            found += [line for line in lines if line.startswith("fsdplint ")]
    return found


def test_commands_are_shown() -> None:
    assert len(commands()) > 30


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_a_command_is_understood(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its options exist and take the values that are shown."""
    for name in ("train.py", "before.py", "after.py"):
        (tmp_path / name).touch()
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    command = command.replace("$RANK_OF_NODE", "1").partition(" > ")[0]
    _, *words = shlex.split(command, comments=True)
    with main.make_context("fsdplint", words) as context:
        name, subcommand, rest = main.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert isinstance(subcommand, click.Command)
        subcommand.make_context(name, rest, parent=context)


def test_the_first_command_shows_a_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    text = README.read_text(encoding="utf-8")
    command = re.search(r"^pip install \. && fsdplint (.*)$", text, re.MULTILINE)
    assert command is not None
    monkeypatch.chdir(README.parent)
    result = CliRunner().invoke(main, command.group(1).split())
    assert result.exit_code == 1
    removed = [line for line in result.stdout.splitlines() if re.match(r"-[^-]", line)]
    added = [line for line in result.stdout.splitlines() if re.match(r"\+[^+]", line)]
    assert "+fully_shard(model)" in added
    assert any("FSDP(" in line for line in removed)
    assert not any("FSDP(" in line for line in added)

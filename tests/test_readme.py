"""The README says what is there. UPDATE_README=1 in the environment writes the table of rules."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdplint.cli.main import main
from fsdplint.config.settings import _KEYS
from fsdplint.registry.rules import documented_rules
from fsdplint.report import rule_table

README = Path(__file__).parents[1] / "README.md"
START, END = "<!-- rules -->\n", "\n<!-- /rules -->"


def test_the_table_of_rules_is_up_to_date() -> None:
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(START)
    table, after = rest.split(END)
    wanted = rule_table(documented_rules())
    if os.environ.get("UPDATE_README"):
        README.write_text(before + START + wanted + END + after, encoding="utf-8")
        table = wanted
    assert table == wanted, "UPDATE_README=1 pytest tests/test_readme.py writes it"


def test_every_setting_is_explained() -> None:
    text = README.read_text(encoding="utf-8")
    block = re.search(r"```toml\n\[tool\.fsdplint\]\n(.*?)```", text, re.DOTALL)
    assert block is not None
    keys = re.findall(r"^(?:\[tool\.fsdplint\.)?([a-z-]+)(?: =|\])", block.group(1), re.MULTILINE)
    assert set(keys) == set(_KEYS)


def test_links_within_the_project_lead_somewhere() -> None:
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (README.parent / target).exists(), target


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

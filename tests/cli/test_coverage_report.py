"""`--coverage`: which calls of the FSDP API a check reached."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command import run

from fsdplint.interpreter.gaps import Gap

PROGRAM = """\
import torch
from torch.distributed.fsdp import fully_shard


def unused(model):
    torch.save(model, "a.pt")


model = torch.nn.Linear(2, 2)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
"""
LIBRARY = """\
import torch
from torch.distributed.fsdp import FSDPModule, fully_shard


def save(model):
    torch.save(model, "a.pt")
"""
LINE = "The check covered 2 of 3 calls of the FSDP API."


def checked(*arguments: str) -> tuple[int, str]:
    result = run("check", *arguments)
    return result.exit_code, result.output


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = Path("train.py")
    file.write_text(PROGRAM)
    return file


def test_the_summary_says_so_if_not_all_is_covered(train: Path) -> None:
    assert checked("train.py") == (0, f"All checks passed.\n{LINE} See --coverage.\n")


def test_the_summary_is_as_before_if_all_is_covered(train: Path) -> None:
    train.write_text(PROGRAM.replace("    torch.save(model", "    print(model"))
    assert checked("train.py") == (0, "All checks passed.\n")


def test_each_gap_has_its_place_and_reason(train: Path) -> None:
    assert checked("--coverage", "train.py") == (
        0,
        "train.py: 2 of 3 sites\n"
        "  6:5: torch.save (save or load): no call of `unused` was found\n"
        f"{LINE}\n",
    )


def test_the_report_as_json(train: Path) -> None:
    code, output = checked("--coverage", "--output-format", "json", "train.py")
    gap = {
        "location": {"row": 6, "column": 5},
        "kind": "save or load",
        "name": "torch.save",
        "gap": "uncalled",
        "reason": "no call of `unused` was found",
    }
    file = {"filename": "train.py", "sites": 3, "covered": 2, "gaps": [gap]}
    counts = {"schema_version": 1, "sites": 3, "covered": 2}
    assert code == 0 and json.loads(output) == {**counts, "files": [file]}


def test_it_is_the_same_from_the_cache(train: Path) -> None:
    first = checked("--coverage", "--cache-dir", "cache", "train.py")
    assert first == checked("--coverage", "--cache-dir", "cache", "train.py")


def test_a_site_is_covered_if_one_of_several_programs_covers_it(train: Path) -> None:
    Path("library.py").write_text(LIBRARY)
    train.write_text(f"from library import save\n{PROGRAM}save(model)\n")
    output = checked("--coverage", "train.py", "library.py")[1]
    assert "library.py: 1 of 1 sites\n" in output


def test_files_that_are_only_imported_do_not_count(train: Path) -> None:
    Path("library.py").write_text(LIBRARY)
    train.write_text(f"from library import save\n{PROGRAM}")
    assert "library.py" not in checked("--coverage", "train.py")[1]


def test_a_program_without_sites(train: Path) -> None:
    train.write_text("from torch.distributed.fsdp import fully_shard\n")
    output = checked("--coverage", "train.py")[1]
    assert output == "No call of the FSDP API was found.\n"


@pytest.mark.parametrize("option", ["--fix", "--diff", "--add-noqa", "--statistics"])
def test_it_is_a_report_of_its_own(train: Path, option: str) -> None:
    code, output = checked("--coverage", option, "train.py")
    assert code == 2 and "cannot be used with" in output


def test_the_documentation_lists_all_gaps() -> None:
    page = Path(__file__).parents[2] / "docs" / "checking.md"
    table = re.findall(r"^\| `([a-z-]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert {gap.name.lower().replace("_", "-") for gap in Gap} <= set(table)

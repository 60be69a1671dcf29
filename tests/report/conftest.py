"""Findings of every kind, and the folder that they are in."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import MESSAGE, NAME, OTHER, TEXT, Milder, Sample, Worse, site

from fsdplint.diagnostics.finding import Edit, Finding, Fix, Safety
from fsdplint.report import Result
from fsdplint.source.files import Problem
from fsdplint.source.source import Source
from fsdplint.trace import Guard, GuardKind


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR", "BUILD_SOURCESDIRECTORY"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def result() -> Result:
    start = TEXT.index("model.forward")
    fixed = Finding(
        rule=Sample,
        site=site(2, 6, 2, 22),
        message=MESSAGE,
        help="Call the module.",
        related=((site(1, 1, 2, 13, "b.py"), "defined here"),),
        configuration=(Guard(GuardKind.CONFIG, "args.fsdp", True, None),),
        fix=Fix(
            "Call the module",
            Safety.SAFE,
            (
                Edit(NAME, start, start + len("model.forward"), "model"),
                Edit("b.py", OTHER.index("clip"), OTHER.index("clip") + 4, "cut"),
            ),
        ),
    )
    start = TEXT.index("(x)")
    alone = Finding(
        Worse,
        site(2, 6, 2, 22),
        "worse",
        fix=Fix("Mend", Safety.SAFE, (Edit(NAME, start + 1, start + 2, "\u00e9y"),)),
    )
    several = Finding(
        Milder, site(1, 1, 2, 5), "mild", fix=Fix("Risk", Safety.UNSAFE, (Edit(NAME, 0, 0, "#"),))
    )
    return Result(
        [fixed, alone, several],
        problems=[Problem("broken.py", None, "syntax error", "mend it")],
        sources={NAME: Source(NAME, TEXT), "b.py": Source("b.py", OTHER)},
        fixable={id(fixed), id(alone)},
        fixable_unsafe={id(fixed), id(alone), id(several)},
    )

"""What fsdplint says of a program after a refactoring, compared with what it says before."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from refactoring import Files, Refactoring
from subjects import Program

from fsdplint.config.options import Options
from fsdplint.config.target_torch import explicit
from fsdplint.engine.check import check
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Effort, Workspace
from fsdplint.interpreter import load
from fsdplint.registry.rules import all_rules

RULES = [rule() for rule in all_rules()]
# What these say of a program is that it uses FSDP1 at all: a good example of another rule may.
USES = {rule.code for rule in RULES if rule.grouped} - {"FSDP208"}
RIGHT = ""


@dataclass(frozen=True)
class Outcome:
    """A refactored program, and what is missing or false: "" if nothing is."""

    refactoring: str
    program: Program
    missed: str


def outcome(refactoring: Refactoring, program: Program) -> Outcome | None:
    """What becomes of a program; None where the refactoring does not apply to it."""
    files = refactoring.apply(program.files)
    if files is None:
        return None
    said = _migration(files) if program.kind == "migration" else _findings(program, files)
    return Outcome(refactoring.name, program, said)


def _findings(program: Program, files: Files) -> str:
    """Codes are compared, not lines: a refactoring moves lines, and may make one of two."""
    wanted, found = _codes_before(program), _codes(program, files)
    missing, false = sorted(wanted - found), sorted(found - wanted)
    said = [f"missing {' '.join(missing)}"] if missing else []
    return "; ".join([*said, f"false {' '.join(false)}"] if false else said)


@cache
def _codes_before(program: Program) -> frozenset[str]:
    return _codes(program, program.files)


def _codes(program: Program, files: Files) -> frozenset[str]:
    with tempfile.TemporaryDirectory() as folder:
        paths = _written(Path(folder), files)
        options = Options(explicit(program.target_torch))
        found = check(load(paths), RULES, options, Effort(fixes=False))
    ignored = set() if program.rule in USES else USES
    return frozenset(one.rule.code for one in found if one.rule.code not in ignored)


def _migration(files: Files) -> str:
    """Why a migration is not whole."""
    with tempfile.TemporaryDirectory() as folder:
        result = fix(Workspace(_written(Path(folder), files)), RULES)
    left = [f for f in result.remaining if f.rule.code.startswith("FSDP2")]
    if left:
        reason = next((f.blocker or f.help for f in left if f.blocker or f.help), "")
        return f"left {' '.join(sorted({f.rule.code for f in left}))}: {reason.splitlines()[0] if reason else ''}"
    return RIGHT if {f.rule.code for f in result.applied} & {"FSDP201", "FSDP213"} else "not found"


def _written(folder: Path, files: Files) -> list[Path]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [folder / name for name in files]

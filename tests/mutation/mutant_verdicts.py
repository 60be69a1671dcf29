"""Whether a check finds a planted bug."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import libcst as cst
from clean_programs import Program
from mutation_operator import Files, Mutant

from fsdplint.config.options import Options
from fsdplint.config.target_torch import explicit
from fsdplint.diagnostics.finding import Finding
from fsdplint.engine.check import check
from fsdplint.engine.workspace import Effort
from fsdplint.interpreter import Program as Interpreted
from fsdplint.interpreter import load
from fsdplint.registry.rules import all_rules

FOUND, MISSED, UNREACHED = "found", "missed", "not covered"
RULES = [rule() for rule in all_rules()]
Keys = Counter[tuple[str, str]]  # codes and the lines that they are reported at


@dataclass(frozen=True)
class Verdict:
    """What a check says of a mutant.

    Attributes:
        mutant: the mutant.
        program: the name of the clean program.
        result: found, missed, or not covered: no run of the interpreter comes to the site with a
            sharded model.
        others: the codes of other rules that find something new in it.
        shown: what shows the bug in a run, if it was run.
    """

    mutant: Mutant
    program: str
    result: str
    others: tuple[str, ...] = ()
    shown: str = ""


@dataclass(frozen=True)
class Clean:
    """What a check says of a clean program."""

    keys: Keys
    reached: dict[str, frozenset[int]]  # lines of each file
    program: Interpreted


def new_findings(files: Files, program: Program) -> tuple[str, ...]:
    """The codes of what a check reports in a changed program, and not in the clean one."""
    with _on_disk(program, files) as folder:
        keys, _ = _findings(program, files, folder)
    return tuple(sorted({code for code, _ in keys - clean(program).keys}))


def verdict(mutant: Mutant, program: Program) -> Verdict:
    before = clean(program)
    codes = set(new_findings(mutant.files, program))
    others = tuple(sorted(codes - set(mutant.rules)))
    if codes & set(mutant.rules):
        return Verdict(mutant, program.name, FOUND, others)
    reached = mutant.line in before.reached.get(mutant.file, ())
    return Verdict(mutant, program.name, MISSED if reached else UNREACHED, others)


@lru_cache(maxsize=8)
def clean(program: Program) -> Clean:
    with _on_disk(program, program.files) as folder:
        keys, interpreted = _findings(program, program.files, folder)
        covered = {
            name: _lines(interpreted, os.path.realpath(folder / name)) for name in program.files
        }
    return Clean(keys, covered, interpreted)


def _lines(interpreted: Interpreted, path: str) -> frozenset[int]:
    """The lines of a file with a node that a run with a sharded model executed."""
    executed = interpreted.executed.sharded | interpreted.executed.plain
    lines = set()
    for name, source in interpreted.sources.items():
        if os.path.realpath(name) == path:
            for node in executed & set(_nodes(source.tree)):
                lines.add(source.location(node).line)
    return frozenset(lines)


def _nodes(tree: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield tree
    for child in tree.children:
        yield from _nodes(child)


@contextmanager
def _on_disk(program: Program, files: Files) -> Iterator[Path]:
    if program.folder is not None:
        yield program.folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        for name, text in files.items():
            path = Path(temporary, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        yield Path(temporary)


def _findings(program: Program, files: Files, folder: Path) -> tuple[Keys, Interpreted]:
    paths = [folder / name for name in files]
    texts = {} if program.folder is None else dict(zip(paths, files.values(), strict=True))
    interpreted = load(paths, texts)
    options = Options(explicit(program.target_torch))
    found = check(interpreted, RULES, options, Effort(fixes=False))
    return Counter(_key(interpreted, one) for one in found), interpreted


def _key(interpreted: Interpreted, finding: Finding) -> tuple[str, str]:
    """A key that does not depend on lines above the finding."""
    at = finding.site.location()
    source = interpreted.sources.get(at.path)
    line = source.line(at.line) if source is not None else ""
    return finding.rule.code, line.strip()

"""The programs that refactorings are applied to, with what is known of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import fixture_runs
from refactoring import Files

from fsdplint.registry.example_files import examples_of
from fsdplint.registry.examples import Symptom, without_markers
from fsdplint.registry.rules import all_rules


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        name: its path below `fixtures`, without the suffix.
        kind: "bad", "good" or "migration".
        files: its texts, the script first.
        rule: the rule that it is an example of.
        target_torch: the torch to check it for.
        symptom: what a bad program shows on two ranks.
        runs: whether the tests run it on two ranks.
    """

    name: str
    kind: str
    files: Files
    rule: str = ""
    target_torch: str | None = None
    symptom: Symptom | None = None
    runs: bool = False

    def __hash__(self) -> int:
        return hash(self.name)


@cache
def examples() -> Sequence[Program]:
    """The bad and good examples of all rules. What only a real run shows is not among them."""
    found = []
    for rule in all_rules():
        if rule.runtime_only:
            continue
        both = examples_of(rule)
        for one in (*both.bad, *both.good):
            if one.suffix != ".py" or getattr(one, "runtime_only", False):
                continue
            symptom = getattr(one, "symptom", None)
            kind = "bad" if one in both.bad else "good"
            name = f"{rule.code}/{one.name}"
            files = {"program.py": without_markers(one.code)}
            runs = not one.skip
            found.append(Program(name, kind, files, rule.code, one.target_torch, symptom, runs))
    return found


@cache
def migrations() -> Sequence[Program]:
    """The FSDP1 programs that are migrated whole."""
    scripts = {"/".join(Path(c.path).parts[:2]): Path(c.path) for c in reversed(fixture_runs.CASES)}
    found = []
    for name, paths in fixture_runs.programs().items():
        script = scripts.get(name, paths[0])
        ordered = [script, *(path for path in paths if path != script)]
        files = {str(p.relative_to(script.parent)): fixture_runs.before(p) for p in ordered}
        found.append(Program(name.removesuffix(".py"), "migration", files))
    return found

"""Whether a migrated program does what the original did: translation validation.

The facts of both programs are compared through the mapping from FSDP1 to FSDP2. A fact that could
not be followed says nothing. `fsdplint validate` compares migrations that others made in the same
way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from fsdplint.comparison.compare import ABSENT, Compared, Outcome
from fsdplint.comparison.remaining_uses import class_by_name, fsdp1_uses
from fsdplint.engine.program_facts import Half, compared_facts
from fsdplint.interpreter import Program
from fsdplint.migration.planner import plan_for, plans_of
from fsdplint.registry.refusal import Harm, Refusal
from fsdplint.source.source import Source
from fsdplint.trace import Location


def difference(before: Program, after: Program) -> Refusal | None:
    """Why a migration that makes one program of another is wrong; None if no fact shows it.

    Programs whose traces keep no arguments show nothing. Neither does an assisted migration, whose
    program raises where something has to be decided.
    """
    if _is_assisted(before):
        return None
    fact = next(_differences(before, after), None)
    if fact is None:
        return None
    what = f"{fact.topic} of `{fact.subject}`" if fact.subject else fact.topic
    now = "missing" if fact.before == ABSENT else fact.before
    then = "missing" if fact.after == ABSENT else fact.after
    line = "" if fact.after_at is None else _line(after, fact.after_at)
    where = f"in `{line}`" if line else "after it"
    text = f"would change what the program does ({what}): {now} now, and {then} {where}"
    return Refusal(text, fact.before_at, Harm.OTHER_FACT)


def use_left(before: Program, after: Program, changed: Iterable[str]) -> Refusal | None:
    """A use of FSDP1 in the changed files, or a test of the name of its class in any file.

    Functions that nothing calls may keep theirs.
    """
    if _is_assisted(before):
        return None
    changed = set(changed)
    for path, source in after.sources.items():
        old = before.sources.get(path)
        plan = None if old is None else plan_for(before, old)
        if plan is None:
            continue
        uses = [*(fsdp1_uses(source) if path in changed else ()), *class_by_name(source)]
        for name, at in uses:
            if (path, _function_at(source, at)) not in plan.untouched:
                return Refusal(f"would leave `{name}` of FSDP1 as it is", at, Harm.USE_LEFT)
    return None


def _is_assisted(program: Program) -> bool:
    """Whether a migration of a program leaves statements that raise."""
    return any(one.undecided is not None and one.undecided.places for one in plans_of(program))


def _function_at(source: Source, at: Location) -> str:
    """The name of the function of the top level that a line belongs to; "" for other lines."""
    for node in source.tree.body:
        if isinstance(node, cst.FunctionDef):
            place = source.location(node)
            if place.line <= at.line <= place.end_line:
                return node.name.value
    return ""


def _differences(before: Program, after: Program) -> Iterator[Compared]:
    if not (before.has_arguments and after.has_arguments):
        return
    for fact in compared_facts(Half(before), Half(after), {Outcome.DIFFERS}):
        if fact.outcome is Outcome.DIFFERS:  # otherwise a call may be what it lacks
            yield fact


def _line(program: Program, at: Location) -> str:
    source = program.sources.get(at.path)
    return "" if source is None else source.line(at.line).strip()

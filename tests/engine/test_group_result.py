"""The result of a group of files as data, as the cache stores it."""

from __future__ import annotations

import json
from dataclasses import fields, replace

from fsdplint.diagnostics.finding import Edit, Finding, Fix, Import, Note, Safety
from fsdplint.engine.group_result import GroupResult, without_trace
from fsdplint.registry.rules import all_rules
from fsdplint.trace import FixedSite, Guard, GuardKind, Location

AT = Location("train.py", 3, 5, 3, 9)
FIX = Fix(
    title="Call the module",
    safety=Safety.UNSAFE,
    edits=(Edit("train.py", 1, 2, "x"),),
    imports=(("train.py", Import("torch", "nn", "n", 4)),),
    group="migration",
    maybe_unused_imports=(("train.py", "FSDP"),),
    depends_on=(("train.py", 1, 9),),
    notes=(Note("a change", "its size", (AT,)),),
    same_objects=True,
    undecided=(("train.py", "state"),),
    requirements=frozenset({"requirements.txt"}),
)
FINDING = Finding(
    rule=next(iter(all_rules())),
    site=FixedSite(AT),
    message="a message",
    help="an advice",
    why="a reason of its own",
    related=((FixedSite(AT), "sharded here"),),
    cause=FixedSite(AT),
    configuration=(Guard(GuardKind.CONFIG, "args.fsdp", holds=True),),
    one_of_several=True,
    group="migration",
    blocker="blocked",
    blocker_codes=("FSDP201-x",),
    missing_torch="a reason",
    fix=FIX,
)


def test_a_finding_survives_the_cache() -> None:
    given = [one.name for one in fields(Finding) if getattr(FINDING, one.name) == one.default]
    assert given == ["events"], "each field that a report reads has a value here"
    stored = json.loads(json.dumps(GroupResult([without_trace(FINDING)]).as_data()))
    (read,) = GroupResult.from_data(stored).found
    assert read == replace(FINDING, cause=None)

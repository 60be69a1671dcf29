"""The plan of one run: all facts that its trace shows."""

from __future__ import annotations

from fsdplint.comparison.facts import Plan
from fsdplint.comparison.launch import add_launch
from fsdplint.comparison.model_names import ModelNames
from fsdplint.comparison.sharding import add_sharding
from fsdplint.comparison.states import add_states
from fsdplint.comparison.training import add_training
from fsdplint.trace import Trace


def plan_of(trace: Trace) -> Plan:
    """The facts of a run."""
    plan, names = Plan(), ModelNames(trace)
    if not trace.complete:
        plan.gaps[""] = "the program was not followed to its end"
    add_sharding(plan, trace, names)
    add_training(plan, trace, names)
    add_states(plan, trace, names)
    add_launch(plan, trace)
    return plan

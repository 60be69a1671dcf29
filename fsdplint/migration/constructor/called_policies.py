"""Policies that are called where a function is wanted: `transformer_auto_wrap_policy(classes)`."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import POLICY_CALLED
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import fsdp1_name
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments

# What FSDP1 gives a policy for each module; without it a call raises TypeError.
GIVEN = ("module", "recurse", "nonwrapped_numel")
POLICIES = {
    "transformer_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "lambda_auto_wrap_policy",
    "_module_wrap_policy",
    "_or_policy",
}


def called_policy(migration: Migration) -> Blocked | None:
    """What says that a policy is called without what FSDP1 gives it; the first in the files."""
    for source in migration.sources:
        for node in nodes(source):
            if isinstance(node, cst.Call) and _raises(migration, node):
                return _blocked(migration, source, node)
    return None


def _raises(migration: Migration, call: cst.Call) -> bool:
    named, rest = arguments(call, GIVEN)
    return _name(migration, call) in POLICIES and not rest and not {*GIVEN} <= {*named}


def _name(migration: Migration, call: cst.Call) -> str:
    """The name of what is called, also where it stays as it is because other code reads it."""
    return fsdp1_name(migration.symbol(call.func)) or ""


def _blocked(migration: Migration, source: Source, call: cst.Call) -> Blocked:
    name = _name(migration, call)
    return Blocked(source, call, POLICY_CALLED(name=name))

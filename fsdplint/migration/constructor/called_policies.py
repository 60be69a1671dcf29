"""Policies that are called instead of passed: `transformer_auto_wrap_policy(classes)`."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.policies import POLICY_CALLED
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import fsdp1_name
from fsdplint.syntax.arguments import arguments

# FSDP1 calls a policy with these for each module; a call without them raises TypeError.
REQUIRED = ("module", "recurse", "nonwrapped_numel")
POLICIES = {
    "transformer_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "lambda_auto_wrap_policy",
    "_module_wrap_policy",
    "_or_policy",
}


def called_policy(migration: Migration) -> Blocked | None:
    """The blocker of the first call of a policy that lacks a required argument."""
    for source in migration.sources:
        for node in nodes(source):
            if isinstance(node, cst.Call) and raises_type_error(migration, node):
                return Blocked(source, node, POLICY_CALLED(name=_name(migration, node)))
    return None


def raises_type_error(migration: Migration, call: cst.Call) -> bool:
    """Whether a call of a policy lacks a required argument."""
    named, rest = arguments(call, REQUIRED)
    return _name(migration, call) in POLICIES and not rest and not {*REQUIRED} <= {*named}


def _name(migration: Migration, call: cst.Call) -> str:
    """The name of FSDP1 that is called, also of a policy that stays as it is."""
    return fsdp1_name(migration.symbol(call.func)) or ""

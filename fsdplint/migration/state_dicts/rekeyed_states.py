"""`FSDP.rekey_optim_state_dict`: numbers of parameters as keys in place of names, and the other way.

FSDP2 takes an optimizer's state with names. A function of the program then does what FSDP1's does.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.variables import top_level
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.state_dicts import (
    OPTIMIZER_STATE_ARGUMENTS,
    REKEY_TYPE,
    REKEY_WRAPPED,
)
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.state_dicts.state_functions import write_once
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments

NAME = "rekey_optim_state_dict"
_PARAMETERS = ("optim_state_dict", "optim_state_key_type", "model")
_KEYS = {"OptimStateKeyType.PARAM_ID": True, "OptimStateKeyType.PARAM_NAME": False}


def rewrite(migration: Migration, source: Source, call: cst.Call) -> None:
    """Call a function that changes the keys as FSDP1 does.

    Raises:
        Blocked: the kind of the keys is only known at run time, or the call has other arguments.
    """
    named, rest = arguments(call, _PARAMETERS)
    kind = named.get("optim_state_key_type")
    by_number = _KEYS.get(migration.fsdp1(kind.value)) if kind is not None else None
    if rest or set(named) != set(_PARAMETERS) or kind is None:
        raise Blocked(source, call, OPTIMIZER_STATE_ARGUMENTS(method=NAME))
    if by_number is None:
        raise Blocked(source, kind.value, REKEY_TYPE())
    if not _is_plain(migration, named["model"].value):
        raise Blocked(source, named["model"].value, REKEY_WRAPPED())
    given = [
        expression(migration, source, named[one].value) for one in ("optim_state_dict", "model")
    ]
    write = _numbers_function if by_number else _names_function
    function = write(migration, source, call)
    migration.account_for(source, call.func)
    migration.account_for(source, kind.value)
    migration.put_call(source, call, function, given)
    migration.step(source, call, "Change the keys of an optimizer's state without FSDP")


def _is_plain(migration: Migration, node: cst.BaseExpression) -> bool:
    """Whether an expression is certainly a model that nothing wraps, shards or compiles."""
    values = migration.values(node)
    return bool(values) and all(
        isinstance(value, ModuleValue) and not (value.wrapper or value.sharded) for value in values
    )


def _numbers_function(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    return _write(
        migration,
        source,
        at,
        "with_numbers",
        "Let an optimizer's state have the numbers of parameters as keys, not their names.",
        "int",
        "{name: number for number, (name, _) in enumerate(model.named_parameters())}",
    )


def _names_function(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    return _write(
        migration,
        source,
        at,
        "with_names",
        "Let an optimizer's state have the names of parameters as keys, not their numbers.",
        "str",
        "[name for name, _ in model.named_parameters()]",
    )


def _write(
    migration: Migration,
    source: Source,
    at: cst.CSTNode,
    name: str,
    purpose: str,
    type_of_keys: str,
    table: str,
) -> str:
    """Write a function that gives the entries of a state other keys, as `table` has them."""
    state, groups, params = (
        string_literal(source, one) for one in ("state", "param_groups", "params")
    )
    return write_once(
        migration,
        source,
        top_level(source, at),
        name,
        [
            f"def {name}(state, model):",
            f'\t"""{purpose}"""',
            f"\tif all(type(key) is {type_of_keys} for key in state[{state}]):",
            "\t\treturn state",
            f"\tkeys = {table}",
            "\treturn {",
            f"\t\t{state}: {{keys[key]: values for key, values in state[{state}].items()}},",
            f"\t\t{groups}: [",
            f"\t\t\t{{**group, {params}: sorted(keys[key] for key in group[{params}])}}",
            f"\t\t\tfor group in state[{groups}]",
            "\t\t],",
            "\t}",
        ],
    )

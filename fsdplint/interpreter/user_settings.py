"""Values that are settings of the users of a program.

A setting is an argument of the command line, an attribute of an object with settings, an entry of a
file, or a variable of the environment. All ranks have the same.
"""

from __future__ import annotations

import re

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.seeds import differs_by_rank
from fsdplint.interpreter.values import Unknown, Value

# What an object has, so that the program has computed nothing of it: `settings.clip`,
# `json.load(f).train.clip`, `OmegaConf.merge(a, b)["clip"]`.
_ENTRY = r"(\.\w+|\[['\"]?\w+['\"]?\]|\.get\(['\"]\w+['\"](, \w*)?\))+"
_OF_OBJECT = re.compile(r"[A-Za-z_][\w.]*(\([^()]*\))?" + _ENTRY)
_GIVEN = re.compile(r"os\.environ\[|.*parse_args\(\)", re.DOTALL)
# The functions in the text of a value that is computed of settings.
_KEEPING = frozenset("float get getattr int parse_args parse_known_args safe_load".split())
_CALLED = re.compile(r"(\w+)\(")


def is_setting(value: Value) -> bool:
    """Whether a value is a setting as the user gives it, of which nothing is computed."""
    if not isinstance(value, Unknown) or value.varying or value.by_rank or value.by_process:
        return False
    return bool(_GIVEN.match(value.origin) or _OF_OBJECT.fullmatch(value.origin))


def is_of_settings(run: Run, value: Value) -> bool:
    """Whether a value is a constant, or certainly computed of settings and constants alone."""
    value = run.settle(value)
    origin = value.origin if isinstance(value, Unknown) else ""
    if not set(_CALLED.findall(origin)) <= _KEEPING:
        return False
    return differs_by_rank(run, value) is False

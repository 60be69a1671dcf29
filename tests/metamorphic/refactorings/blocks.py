"""A statement around the whole body of a script."""

from __future__ import annotations

import libcst as cst
from refactoring import refactoring
from scripts import Script, of_main
from syntax_tools import Statement, block, is_docstring, statements, with_head


def _inside(script: Script, text: str, first: str = "") -> cst.Module:
    """The body inside of the compound statement of a text."""
    outer = statements(text)[0]
    start = 1 if is_docstring(script.body[0]) else 0
    start += "global " in cst.Module([script.body[start]]).code if len(script.body) > start else 0
    inner: list[Statement] = [outer.with_changes(body=block(script.body[start:]))]
    before = statements(first) if first else []
    return script.with_body([*script.body[:start], *before, *inner])


@refactoring(is_of_script=True)
@of_main
def if_true(script: Script) -> cst.Module | None:
    """The body stands under `if True:`."""
    return _inside(script, "if True:\n    pass\n")


@refactoring(is_of_script=True)
@of_main
def constant_flag(script: Script) -> cst.Module | None:
    """The body stands under a flag that is a constant of the module."""
    changed = _inside(script, "if IS_ENABLED:\n    pass\n")
    return with_head(changed, "IS_ENABLED = True\n")


@refactoring(is_of_script=True)
@of_main
def argparse_flag(script: Script) -> cst.Module | None:
    """The body stands under a flag of the command line."""
    parser = (
        "flag_parser = argparse.ArgumentParser()\n"
        'flag_parser.add_argument("--is-disabled", action="store_true")\n'
        "flags = flag_parser.parse_known_args()[0]\n"
    )
    changed = _inside(script, "if not flags.is_disabled:\n    pass\n", parser)
    return with_head(changed, "import argparse\n")


@refactoring(is_of_script=True)
@of_main
def environment_flag(script: Script) -> cst.Module | None:
    """The body stands under a variable of the environment with a default."""
    test = 'if os.environ.get("IS_ENABLED", "1") == "1":\n    pass\n'
    return with_head(_inside(script, test), "import os\n")


@refactoring(is_of_script=True)
@of_main
def early_return(script: Script) -> cst.Module | None:
    """`main` returns before its body if a variable of the environment is set."""
    start = 1 if is_docstring(script.body[0]) else 0
    test = statements('if os.environ.get("IS_DISABLED"):\n    return\n')
    changed = script.with_body([*script.body[:start], *test, *script.body[start:]])
    return with_head(changed, "import os\n") if "global " not in changed.code else None


@refactoring(is_of_script=True)
@of_main
def loop_over_one(script: Script) -> cst.Module | None:
    """The body stands in a loop over a tuple of one element."""
    return _inside(script, 'for name_of_run in ("train",):\n    pass\n')


@refactoring(is_of_script=True)
@of_main
def loop_range_one(script: Script) -> cst.Module | None:
    """The body stands in a loop over `range(1)`."""
    return _inside(script, "for attempt in range(1):\n    pass\n")


@refactoring(is_of_script=True)
@of_main
def null_context(script: Script) -> cst.Module | None:
    """The body stands under `contextlib.nullcontext()`."""
    changed = _inside(script, "with contextlib.nullcontext():\n    pass\n")
    return with_head(changed, "import contextlib\n")


@refactoring(is_of_script=True)
@of_main
def context_manager(script: Script) -> cst.Module | None:
    """The body stands under a context manager of the script, a generator."""
    manager = (
        "import contextlib\n\n\n"
        "@contextlib.contextmanager\n"
        "def session(name):\n"
        "    try:\n"
        "        yield name\n"
        "    finally:\n"
        "        sys.stdout.flush()\n"
    )
    changed = _inside(script, 'with session("train"):\n    pass\n')
    return with_head(changed, "import sys\n" + manager)


@refactoring(is_of_script=True)
@of_main
def context_class(script: Script) -> cst.Module | None:
    """The body stands under a context manager of the script, a class."""
    manager = (
        "class Session:\n"
        "    def __enter__(self):\n"
        "        return self\n\n"
        "    def __exit__(self, *error):\n"
        "        return False\n\n\n"
    )
    return with_head(_inside(script, "with Session() as session:\n    pass\n"), manager)


@refactoring(is_of_script=True)
@of_main
def try_finally(script: Script) -> cst.Module | None:
    """The body stands in a `try` with a `finally`."""
    changed = _inside(script, "try:\n    pass\nfinally:\n    sys.stdout.flush()\n")
    return with_head(changed, "import sys\n")


@refactoring(is_of_script=True)
@of_main
def try_except_raise(script: Script) -> cst.Module | None:
    """The body stands in a `try` whose handler reports the error and raises it again."""
    handler = 'try:\n    pass\nexcept Exception as error:\n    print("failed", error)\n    raise\n'
    return _inside(script, handler)

"""Modules and classes that a text of a setting names: `path.rsplit(".", 1)`, `import_module(path)`.

The text is the default of a setting, so that what it names is one candidate of a choice.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.argument_values import default_text
from fsdplint.interpreter.choices import choose
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.imports import import_module, locate_module
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import Const, ProjectModule, Sequence, Unknown, Value, constant


@method("Unknown", "partition", "rpartition", "rsplit", "split")
def split_text(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """The parts of a text, if the program relies on their number; each is a setting."""
    text = default_text(run, receiver)
    arguments = [constant(one) for one in (*call.args, *call.kwargs.values())]
    if text is None or not receiver.origin or call.open or None in arguments:
        return call_unknown(run, _method_of(receiver, name), call)
    try:
        parts = getattr(text, name)(*arguments)
    except (TypeError, ValueError):
        parts = ()
    has_number = name.endswith("partition") or arguments[-1:] == [1] and len(parts) == 2
    if not parts or not (has_number or _names_for_parts(run, call) == len(parts)):
        return call_unknown(run, _method_of(receiver, name), call)
    origin = f"{receiver.origin}.{name}({', '.join(map(repr, arguments))})"
    settings: list[Value] = [
        Unknown(f"{origin}[{number}]", default=Const(part)) for number, part in enumerate(parts)
    ]
    return Sequence(settings, type(parts).__name__)


def _names_for_parts(run: Run, call: Call) -> int:
    """The number of names that `a, b = text.split(...)` binds; 0 for other statements."""
    statement = run.source.parent(call.node)
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return 0
    target = statement.targets[0].target
    elements = target.elements if isinstance(target, cst.Tuple | cst.List) else ()
    return 0 if any(isinstance(one, cst.StarredElement) for one in elements) else len(elements)


def _method_of(receiver: Unknown, name: str) -> Unknown:
    """A method of another value than a text of a setting."""
    return Unknown(
        origin=f"{receiver.origin}.{name}" if receiver.origin else "",
        varying=receiver.varying,
        by_rank=receiver.by_rank,
        by_process=receiver.by_process,
        part_of=receiver.part_of,
        library=receiver.library,
        argument=receiver.argument,
        rank_local=receiver.rank_local,
    )


@function("os.path.expanduser", "os.path.expandvars", "pathlib.Path")
def path_of_setting(run: Run, name: str, call: Call) -> Value:
    """A path with the default of the text in it, if nothing in the text is replaced."""
    given = run.settle(call.args[0]) if call.args else Unknown()
    text = default_text(run, given) if len(call.values) == 1 and not call.open else None
    origin = given.origin if len(call.values) == 1 and isinstance(given, Unknown) else ""
    result = unknown_result(call, f"{name}({origin})" if origin else "")
    if text is None or "$" in text or text.startswith("~"):
        return result
    if name != "pathlib.Path":
        return given
    result.default = Const(text)
    return result


def module_of_setting(run: Run, name: Unknown) -> Unknown | None:
    """The module of the project that a setting names by default, as the default of a setting.

    Its constants are not read: another module may give others.
    """
    text = default_text(run, name)
    if text is None or not name.origin or locate_module(run, text) is None:
        return None
    return Unknown(f"import_module({name.origin})", default=import_module(run, text))


def member_of_setting(run: Run, owner: Value, name: Value, call: Call) -> Value | None:
    """The member that a setting names by default, of a module that a setting names by default.

    Of a module that the program names itself, the other members are candidates, too.
    """
    module = run.settle(owner.default) if isinstance(owner, Unknown) and owner.default else None
    text = default_text(run, name)
    if not isinstance(module, ProjectModule) or text is None:
        return None
    found = module.scope.names.get(text)
    if found is None or not isinstance(name, Unknown):
        return None
    return choose(run, name, {text: found}, call.node, complete=False)

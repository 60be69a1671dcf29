"""Command-line arguments: their choices, and the local rank that an old launcher passed."""

from __future__ import annotations

from fsdplint.interpreter.argument_values import note_defaults, note_values
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import method
from fsdplint.interpreter.ranks import ARGUMENT
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Function,
    Method,
    Partial,
    Sequence,
    Unknown,
    Value,
    constant,
)


@method("Unknown", "add_argument")
def add_argument(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    names = [constant(value) for value in call.args]
    default = call.kwargs.get("default")
    plain = not call.open and "dest" not in call.kwargs and constant(default) in (0, -1)
    if names == [ARGUMENT] and plain and isinstance(default, Const):
        run.launcher_arguments["local_rank"] = run.site(call.node)
    elif ARGUMENT in names:
        run.launcher_arguments.pop("local_rank", None)
    _note_choices(run, names, call)
    return Unknown()


@method("Unknown", "parse_args")
@method("Unknown", "parse_known_args")
def parse_arguments(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """`parser.parse_args(argv)`: the arguments have one name, whatever list they come from."""
    result = call_unknown(run, Method(receiver, "parse_args"), call)
    if isinstance(result, Unknown) and receiver.origin:
        result.origin = f"{receiver.origin.removesuffix('()')}.parse_args()"
    return Sequence([result, Unknown()], "tuple") if name == "parse_known_args" else result


@method("Unknown", "set_defaults")
def set_defaults(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """`parser.set_defaults(func=train)`: the arguments name the function that a command runs."""
    note_defaults(run, call)
    for key, value in call.kwargs.items():
        value = run.settle(value)
        if _holds_code(run, value):
            known = run.argument_values.setdefault(key, [])
            known += [value] if value not in known else []
    return Const(None)


def _holds_code(run: Run, value: Value) -> bool:
    """Whether a value is a function or class, or a list of them."""
    if isinstance(value, Sequence):
        return bool(value.items) and all(_holds_code(run, run.settle(one)) for one in value.items)
    return isinstance(value, Function | Class | Bound | Partial)


@method("Unknown", "add_arguments")
def add_arguments(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """`parser.add_arguments(Options, dest="options")` of simple_parsing."""
    kind, key = run.settle(call.arg(0, "dataclass") or Unknown()), constant(call.arg(1, "dest"))
    if isinstance(kind, Class) and isinstance(key, str):
        run.argument_values[key] = [run.call(kind, Call(call.node, open=True))]
        return Unknown()
    return call_unknown(run, Method(receiver, name), call)


def _note_choices(run: Run, names: list[object], call: Call) -> None:
    """Note what `choices=` offers; another parser may have an argument of the same name."""
    given = constant(call.kwargs.get("dest"))
    flags = [name for name in names if isinstance(name, str)]
    long = [name for name in flags if not name.startswith("-") or name.startswith("--")]
    name = given if isinstance(given, str) else next(iter(long or flags), "")
    choices = run.settle(call.kwargs.get("choices") or Unknown())
    offered = (
        [constant(run.settle(item)) for item in choices.items]
        if isinstance(choices, Sequence) and not choices.open
        else []
    )
    texts = tuple(one for one in offered if isinstance(one, str))
    destination = name.lstrip("-").replace("-", "_")
    if run.argument_choices.setdefault(destination, texts) != texts:
        run.argument_choices[destination] = ()
    note_values(run, destination, call)

"""Command lines that are made from functions and classes: fire, typer, click, tyro and others.

The user may set each parameter, so its default is not its value.
"""

from __future__ import annotations

from collections.abc import Mapping

from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.choices import choose
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.functions import RUN_AT_ONCE
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.settings import copy_with_settings
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    LibraryObject,
    Method,
    ModuleValue,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
)

# Functions that call a function, or construct a class, with the arguments of the command line.
_CALLERS = (
    "tyro.cli", "typer.run", "jsonargparse.CLI", "jsonargparse.auto_cli", "chz.entrypoint",
    "chz.nested_entrypoint", "absl.app.run", "defopt.run", "argh.dispatch_command", "plac.call",
    "clize.run", "simple_parsing.parse", "simple_parsing.helpers.parse", "draccus.parse",
    "pyrallis.parse",
)  # fmt: skip
# Those that also run a method of the class.
_RUNS_METHODS = ("fire.Fire", "fire.core.Fire", "jsonargparse.CLI", "jsonargparse.auto_cli")
_PARSERS = (
    "transformers.HfArgumentParser",
    "transformers.hf_argparser.HfArgumentParser",
    "trl.TrlParser",
)
# Decorators of functions whose first parameter is an object of the class of its annotation.
_WRAPPERS = ("pyrallis.wrap", "pyrallis.argparsing.wrap", "draccus.wrap", "draccus.argparsing.wrap")
_WRAPPED = "pyrallis.wrap()"
_APPS = ("typer.Typer", "cyclopts.App")
_COMMAND = "typer.Typer.command()"


def run_command(run: Run, target: Value | None, call: Call, *, with_methods: bool = False) -> Value:
    """Run what a command line stands for: a function, a class, an object or a dict of commands."""
    target = run.settle(target) if target is not None else Unknown()
    inner = Call(call.node, open=True)
    if isinstance(target, Function | Bound | Partial):
        return run.call(target, inner)
    if isinstance(target, Class):
        target = run.call(target, inner)
        if not with_methods:
            return target
    if isinstance(target, Instance | ModuleValue) and with_methods:
        return _choose_command(run, _methods(run, target, call), call)
    if isinstance(target, Dict):
        return _choose_command(run, target.items, call)
    if isinstance(target, Sequence) and target.items:
        named = {getattr(run.settle(one), "name", number): one for number, one in
                 enumerate(target.items)}  # fmt: skip
        return _choose_command(run, named, call)
    return Unknown()


def _choose_command(run: Run, commands: Mapping[object, Value], call: Call) -> Value:
    name = Unknown(origin=f"the command of {run.text(call.node)}")
    chosen = choose(run, name, commands, call.node)
    return run_command(run, chosen, call, with_methods=True) if chosen is not None else Unknown()


def _methods(run: Run, target: Instance | ModuleValue, call: Call) -> dict[object, Value]:
    """The public methods of an object that its class defines."""
    classes = target.cls.mro() if target.cls is not None else []
    return {
        name: read_attribute(run, target, name, call.node)
        for cls in reversed(classes)
        for name, value in cls.attributes.items()
        if isinstance(value, Function) and not name.startswith("_")
        and "property" not in value.decorators
    }  # fmt: skip


@function(*_CALLERS)
def call_by_command_line(run: Run, name: str, call: Call) -> Value:
    """`default=` is an object whose fields the command line may change."""
    default = run.settle(call.kwargs.get("default") or Unknown())
    if isinstance(default, Instance):
        return copy_with_settings(default)
    target = call.args[0] if call.args else call.arg(0, "config_class")
    if target is None:
        target = call.arg(0, "components")
    if not isinstance(
        run.settle(target or Unknown()), Function | Bound | Partial | Class | Dict | Sequence
    ):
        return call_unknown(run, Symbol(name), call)
    return run_command(run, target, call, with_methods=name in _RUNS_METHODS)


@function("fire.Fire", "fire.core.Fire")
def fire(run: Run, name: str, call: Call) -> Value:
    """Without an argument, the commands are the functions of the file."""
    target = call.arg(0, "component")
    if target is None:
        names = run.scope.module.names
        functions: dict[object, Value] = {
            one: value
            for one, value in names.items()
            if isinstance(value, Function) and not one.startswith("_")
        }
        return _choose_command(run, functions, call)
    return run_command(run, target, call, with_methods=True)


# Parsers of dataclasses ---------------------------------------------------------------------------


@function(*_PARSERS)
def parser_of_dataclasses(run: Run, name: str, call: Call) -> Value:
    kinds = call.arg(0, "dataclass_types")
    return LibraryObject(_PARSERS[0], {"types": kinds} if kinds is not None else {})


@method("LibraryObject", "parse_args_into_dataclasses", "parse_args_and_config", "parse_dict",
        "parse_json_file", "parse_yaml_file")  # fmt: skip
def parse_dataclasses(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    kinds = run.settle(receiver.get("types") or Unknown())
    items = kinds.items if isinstance(kinds, Sequence) else [kinds]
    classes = [run.settle(item) for item in items]
    if receiver.name not in _PARSERS or not all(isinstance(one, Class) for one in classes):
        return call_unknown(run, Method(receiver, name), call)
    made = [run.call(one, Call(call.node, open=True)) for one in classes]
    asks_for_rest = {"return_remaining_strings", "return_remaining_args"} & set(call.kwargs)
    return Sequence([*made, Unknown()] if asks_for_rest else made, "tuple")


@function(*_WRAPPERS)
def wrap_function(run: Run, name: str, call: Call) -> Value:
    return Partial(Symbol(_WRAPPED))


@function(_WRAPPED)
def give_settings(run: Run, name: str, call: Call) -> Value:
    """The function under `@pyrallis.wrap()` gets an object of the class that it annotates."""
    target = run.settle(call.args[0]) if call.args else Unknown()
    params = target.node.params.params if isinstance(target, Function) else ()
    if isinstance(target, Function) and params and params[0].annotation is not None:
        kind = run.eval(params[0].annotation.annotation)
        if isinstance(kind, Class):
            target.defaults[params[0].name.value] = run.call(kind, Call(call.node, open=True))
    return target


@function(*RUN_AT_ONCE)
def call_parse(run: Run, name: str, call: Call) -> Value:
    """`@call_parse` runs the function at once in the program, and wraps it in an imported file."""
    target = run.settle(call.arg(0, "func") or Unknown())
    if not isinstance(target, Function):
        return Partial(Symbol(name))  # `@call_parse()`
    if constant(run.scope.module.names.get("__name__") or Unknown()) == "__main__":
        run.call(target, Call(call.node, open=True))
    return target


# Commands that decorators register ----------------------------------------------------------------


@function(*_APPS)
def app(run: Run, name: str, call: Call) -> Value:
    return LibraryObject(name, {"commands": Dict()})


@method("LibraryObject", "command")
def command(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    if receiver.name not in _APPS:
        return call_unknown(run, Method(receiver, name), call)
    return Partial(Symbol(_COMMAND), [receiver, call.arg(0, "name") or Const(None)])


@function(_COMMAND)
def register_command(run: Run, name: str, call: Call) -> Value:
    owner, given, target = (run.settle(value) for value in call.args[:3])
    commands = owner.get("commands") if isinstance(owner, LibraryObject) else None
    if isinstance(commands, Dict) and isinstance(target, Function):
        key = given.value if isinstance(given, Const) and given.value else target.name
        commands.items[key] = target
    return target


@method("LibraryObject", "add_typer")
def add_app(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    added, commands = (
        run.settle(call.arg(0, "typer_instance") or Unknown()),
        receiver.get("commands"),
    )
    if isinstance(commands, Dict) and isinstance(added, LibraryObject):
        inner = added.get("commands")
        commands.items.update(inner.items if isinstance(inner, Dict) else {})
    return Const(None)


@method("LibraryObject", "__call__", "meta")
def run_app(run: Run, receiver: LibraryObject, name: str, call: Call) -> Value:
    commands = receiver.get("commands")
    if receiver.name not in _APPS or not isinstance(commands, Dict):
        return call_unknown(run, receiver, call)
    return _choose_command(run, commands.items, call)


@method("Function", "command")
def command_of_group(run: Run, receiver: Function, name: str, call: Call) -> Value:
    """`@group.command()` of click."""
    commands = run.commands.setdefault(receiver.node, Dict())
    held = LibraryObject(_COMMAND, {"commands": commands})
    return Partial(Symbol(_COMMAND), [held, call.arg(0, "name") or Const(None)])


@method("Function", "add_command")
def add_command(run: Run, receiver: Function, name: str, call: Call) -> Value:
    commands = run.commands.setdefault(receiver.node, Dict())
    target = run.settle(call.arg(0, "cmd") or Unknown())
    if isinstance(target, Function):
        commands.items[target.name] = target
    return Const(None)


def run_group(run: Run, group: Function, call: Call) -> Value:
    """Run the command of a group of click."""
    return _choose_command(run, run.commands[group.node].items, call)

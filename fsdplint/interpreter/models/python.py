"""Functions of Python itself: builtins, functools, importlib, os."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fsdplint.discovery.module_resolver import absolute
from fsdplint.interpreter import losses, plain_files, unfinished_saves
from fsdplint.interpreter.argument_values import default_text
from fsdplint.interpreter.choices import module_like
from fsdplint.interpreter.file_paths import may_depend_on_rank
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.imports import import_any, import_module
from fsdplint.interpreter.long_run import note_extremum
from fsdplint.interpreter.mode_code import module_of_mode
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.models.module_paths import joined
from fsdplint.interpreter.models.named_in_settings import module_of_setting
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.rank_local import derive_rank_local
from fsdplint.interpreter.ranks import environment
from fsdplint.interpreter.records import MADE_FIELD
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.templates import fill_template
from fsdplint.interpreter.torch_values import (
    ModulePath,
    RankTest,
    RankValue,
    ShardTensor,
    TensorValue,
)
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Condition,
    Const,
    Function,
    LibraryObject,
    Partial,
    PartialMethod,
    Sequence,
    Super,
    Symbol,
    Unknown,
    Value,
    constant,
)


@function("builtins.", "logging.", "time.", "math.", "random.", "warnings.", "re.", "json.", "sys.",
          "datetime.", "collections.", "typing.", "pathlib.", "shutil.", "numpy.", "argparse.",
          "tempfile.", "glob.", "gc.", "wandb.", "string.", "uuid.", "socket.", "subprocess.",
          "torch.utils.tensorboard.", "tqdm.write", "rich.", "loguru.", "os.", "inspect.", "dis.",
          "types.", "pprint.", "yaml.", "toml.", "tomllib.")  # fmt: skip
def quiet(run: Run, name: str, call: Call) -> Value:
    """Functions that do not change modules and have an unknown result."""
    if name.startswith(("time.", "random.", "datetime.")):
        return Unknown(varying=True)
    origin = f"{name}()" if not call.values else ""
    if name.startswith("argparse."):
        origin = name
    return unknown_result(call, origin)


@function("builtins.min", "builtins.max")
def extremum(run: Run, name: str, call: Call) -> Value:
    short = name.rpartition(".")[2]
    values = list(map(run.settle, call.args))
    plain = not call.open and not call.kwargs
    result = unknown_result(call, _origin_of_extremum(short, values) if plain else "")
    result.present = not call.open and "default" not in call.kwargs
    if plain:
        note_extremum(run, result, short, values)
    return result


def _origin_of_extremum(name: str, values: list[Value]) -> str:
    """What identifies the extremum of settings and constants: `max(args.accumulate, 1)`."""
    parts = []
    for value in values:
        if isinstance(value, Const):
            parts.append(repr(value.value))
        elif isinstance(value, Unknown) and value.origin and not value.varying:
            parts.append(value.origin)
        else:
            return ""
    return f"{name}({', '.join(parts)})" if len(parts) > 1 else ""


@function("typing.cast", "typing_extensions.cast")
def cast(run: Run, name: str, call: Call) -> Value:
    return call.arg(1, "val") or Unknown()


@function("typing.assert_type", "typing_extensions.assert_type")
def assert_type(run: Run, name: str, call: Call) -> Value:
    return call.arg(0, "val") or Unknown()


@function("os.chdir")
def change_folder(run: Run, name: str, call: Call) -> Value:
    run.in_own_folder = may_depend_on_rank(run.settle(call.arg(0, "path") or Unknown()))
    return Const(None)


@function("os.getpid", "platform.node", "socket.gethostname", "socket.getfqdn")
def process_id(run: Run, name: str, call: Call) -> Value:
    return Unknown(origin=f"{name}()", by_process=True)


@function("builtins.int", "builtins.str", "builtins.float", "builtins.bool", "builtins.abs")
def convert(run: Run, name: str, call: Call) -> Value:
    value = call.args[0] if call.args else Const(None)
    if isinstance(value, ShardTensor):
        tensors.read_number(run, value, name.rpartition(".")[2], call.node)
        return Unknown(varying=True)
    if isinstance(value, TensorValue) and name in ("builtins.float", "builtins.int"):
        return losses.through_method(value, "item", Call(call.node))
    if isinstance(value, RankValue | TensorValue | Unknown):
        return value
    if isinstance(value, RankTest | Condition) and name == "builtins.bool":
        return value
    if name == "builtins.bool" and module_of_mode(run, value) is not None:
        return value
    if isinstance(value, Const):
        try:
            kind: dict[str, Callable[[Any], Any]] = {
                "int": int,
                "str": str,
                "float": float,
                "bool": bool,
                "abs": abs,
            }
            return Const(kind[name.rpartition(".")[2]](value.value))
        except (TypeError, ValueError):
            return Unknown()
    return unknown_result(call)


@function("math.prod")
def product(run: Run, name: str, call: Call) -> Value:
    """A product of constants and of at most one other factor that is not one."""
    factors = run.settle(call.args[0]) if len(call.args) == 1 else Unknown()
    if not isinstance(factors, Sequence) or factors.open or call.kwargs or call.open:
        return quiet(run, name, call)
    items = list(map(run.settle, factors.items))
    known = [one.value for one in items if isinstance(one, Const)]
    others = [one for one in items if not isinstance(one, Const)]
    if not all(isinstance(value, int | float) for value in known):
        return quiet(run, name, call)
    number = math.prod(known)
    if not others:
        return Const(number)
    return others[0] if len(others) == 1 and number == 1 else quiet(run, name, call)


@function("builtins.super")
def super_of(run: Run, name: str, call: Call) -> Value:
    for frame in reversed(run.frames):
        if frame.owner is not None and frame.function is not None:
            receiver = frame.receiver
            if receiver is not None:
                return Super(frame.owner, receiver)
    return Unknown()


@function("functools.partial")
def partial(run: Run, name: str, call: Call) -> Value:
    if not call.args:
        return Unknown()
    return Partial(call.args[0], call.args[1:], dict(call.kwargs), call.open)


@function("types.MethodType")
def bind(run: Run, name: str, call: Call) -> Value:
    """`MethodType(function, receiver)`"""
    if len(call.args) != 2 or call.open:
        return quiet(run, name, call)
    return _bound(run, *call.args) or quiet(run, name, call)


@method("Function", "__get__")
def get_bound(run: Run, receiver: Function, name: str, call: Call) -> Value:
    """`function.__get__(receiver, owner)`"""
    bound = _bound(run, receiver, call.args[0]) if call.args and not call.open else None
    return bound or unknown_result(call)


def _bound(run: Run, function: Value, receiver: Value) -> Bound | None:
    """A function of the program with an object as its first argument; None of others."""
    function = run.settle(function)
    return Bound(function, run.settle(receiver)) if isinstance(function, Function) else None


@function("functools.partialmethod")
def partial_method(run: Run, name: str, call: Call) -> Value:
    if not call.args:
        return Unknown()
    return PartialMethod(call.args[0], call.args[1:], dict(call.kwargs), call.open)


@function("builtins.staticmethod", "builtins.classmethod", "builtins.property")
def descriptor(run: Run, name: str, call: Call) -> Value:
    """What a class gives its attribute: the function, which knows how it is read."""
    value = run.settle(call.args[0]) if call.args else Unknown()
    if isinstance(value, Function):
        return replace(value, decorators=(*value.decorators, name.rpartition(".")[2]))
    return value if name.endswith(".staticmethod") else unknown_result(call)


@function("functools.update_wrapper")
def update_wrapper(run: Run, name: str, call: Call) -> Value:
    return call.arg(0, "wrapper") or Unknown()


@function("functools.wraps")
def wraps(run: Run, name: str, call: Call) -> Value:
    """A decorator that returns its argument."""
    return Partial(Symbol("functools.update_wrapper"))


@function("functools.lru_cache", "functools.cache")
def decorator(run: Run, name: str, call: Call) -> Value:
    return call.args[0] if call.args else Unknown()


@function("importlib.import_module")
def import_by_name(run: Run, name: str, call: Call) -> Value:
    """Import a module by its name; a relative name needs a package."""
    name_of, package = call.arg(0, "name"), constant(call.arg(1, "package"))
    package = package if isinstance(package, str) else None
    if isinstance(name_of, Unknown) and package is None and not _is_in_one_folder(run, name_of):
        of_setting = module_of_setting(run, name_of)
        if of_setting is not None:
            return of_setting
    if isinstance(name_of, Unknown) and name_of.template is not None:
        chosen = module_like(run, name_of.template, package, call.node)
        return call_unknown(run, Symbol(name), call) if chosen is None else chosen
    if isinstance(name_of, Unknown) and run.loop_depth:
        import_any(run)
    wanted = constant(name_of)
    full = absolute(wanted, package) if isinstance(wanted, str) else None
    if full is not None:
        return import_module(run, full)
    imported = call_unknown(run, Symbol(name), call)
    if isinstance(name_of, Unknown) and package is None:
        run.named_imports[imported] = name_of
    return imported


def _is_in_one_folder(run: Run, name: Unknown) -> bool:
    """Whether the unknown part of the name of a module is the name of one file in a folder."""
    return name.template is not None and "." not in (default_text(run, name.template.hole) or "")


@function("builtins.__import__")
def import_function(run: Run, name: str, call: Call) -> Value:
    """`__import__("a.b")` is the package `a`, unless it gets a list of names."""
    wanted, names = constant(call.arg(0, "name")), call.arg(3, "fromlist")
    if not isinstance(wanted, str) or not absolute(wanted, None):
        return call_unknown(run, Symbol(name), call)
    whole = isinstance(names, Sequence) and names.items
    return import_module(run, wanted if whole else wanted.partition(".")[0])


# Variables that `torchrun`, MPI or the scheduler of a cluster sets, so that no default is taken.
_OF_LAUNCHERS = (
    "AIP_", "GROUP_", "JOB_", "LOCAL_", "LSB_", "MASTER_", "OMPI_", "PBS_", "PMI_", "ROLE_",
    "SLURM_", "TORCHELASTIC_",
)  # fmt: skip


@function("os.getenv", "os.environ.get", "os.environ.setdefault")
def getenv(run: Run, name: str, call: Call) -> Value:
    value, default = environment(call.arg(0, "key") or Unknown()), call.arg(1, "default")
    if isinstance(value, Unknown) and isinstance(default, Const):
        run.environment_defaults[value.origin] = default
    key = constant(call.arg(0, "key"))
    set_by_launcher = isinstance(key, str) and key.startswith(_OF_LAUNCHERS)
    if isinstance(value, Unknown) and isinstance(default, Unknown) and not set_by_launcher:
        local = derive_rank_local(default)
        if local is not None:  # where the variable is not set, each rank has its own value
            return Unknown(varying=True, by_process=default.by_process, rank_local=local)
        return default if default.by_process else value
    return value


@function("os.path.")
def path(run: Run, name: str, call: Call) -> Value:
    known = all(isinstance(v, Const) or isinstance(v, Unknown) and v.origin for v in call.values)
    asks = name.endswith(("exists", "isfile", "isdir"))
    if asks:
        run.may_have_waited_at = len(run.trace.events)  # until there is the file
        unfinished_saves.note_wait(run)
    return unknown_result(call, run.text(call.node) if known or asks else "")


@function("os.path.join")
def join_path(run: Run, name: str, call: Call) -> Value:
    """A path, which the same parts make wherever the program joins them."""
    parts = [run.settle(value) for value in call.args]
    texts = [constant(part) for part in parts]
    if parts and not call.open and all(isinstance(text, str) for text in texts):
        return Const(posixpath.join(*map(str, texts)))
    origins = [repr(p.value) if isinstance(p, Const) else _origin(p) for p in parts]
    known = all(origins) and not call.open
    result = unknown_result(call, f"{name}({', '.join(origins)})" if known else "")
    if len(parts) > 1 and not call.open:
        folder = parts[0] if len(parts) == 2 else join_path(run, name, Call(call.node, parts[:-1]))
        plain_files.note_joined(result, folder)
    return result


def _origin(value: Value) -> str:
    return value.origin if isinstance(value, Unknown) else ""


@function("builtins.open")
def open_file(run: Run, name: str, call: Call) -> Value:
    path = call.arg(0, "file")
    known = isinstance(path, Const) or isinstance(path, Unknown) and (path.origin or path.default)
    result = unknown_result(call, f"open({run.text(call.node)})" if known else "")
    result.library = name
    if path is not None:
        result.parts["name"] = path
    return result


@function("dataclasses.field", "torch.no_grad_decorator",
          "pydantic.Field", "pydantic.fields.Field", "msgspec.field",
          "attr.attrib", "attr.field", "attr.ib", "attrs.field")  # fmt: skip
def dataclass_field(run: Run, name: str, call: Call) -> Value:
    default = call.kwargs.get("default")
    if default is None and name.startswith(("pydantic.", "attr.")) and call.args:
        default = call.args[0]  # `...` says that there is none
    if default is not None:
        return default
    factory = call.kwargs.get("factory" if name.startswith("attr") else "default_factory")
    if isinstance(factory, Class):
        return run.call(factory, Call(call.node))
    if isinstance(factory, Bound | Function | Partial) and not name.startswith("pydantic."):
        return LibraryObject(MADE_FIELD, {"default_factory": factory})
    return Unknown()


@method("Const", "format")
def text_of(run: Run, receiver: Const, name: str, call: Call) -> Value:
    result = unknown_result(call, run.text(call.node))
    if isinstance(receiver.value, str) and not (call.kwargs or call.open):
        result.template = fill_template(receiver.value, call.args)
    return result


@method("Const", "join")
def joined_text(run: Run, receiver: Const, name: str, call: Call) -> Value:
    parts = run.settle(call.args[0]) if call.args else Unknown()
    if isinstance(parts, ModulePath) and receiver.value == ".":
        return joined(parts)
    if not isinstance(parts, Sequence) or parts.open:
        return unknown_result(call)
    texts = [constant(run.settle(item)) for item in parts.items]
    if not isinstance(receiver.value, str) or not all(isinstance(text, str) for text in texts):
        return unknown_result(call)
    return Const(receiver.value.join(map(str, texts)))


@method("Const", "split", "lower", "upper", "strip", "startswith", "endswith", "replace", "rsplit",
        "partition", "rpartition", "capitalize", "title", "lstrip", "rstrip", "removeprefix",
        "removesuffix")  # fmt: skip
def fold_text(run: Run, receiver: Const, name: str, call: Call) -> Value:
    if isinstance(receiver.value, str) and all(isinstance(a, Const) for a in call.args):
        try:
            result = getattr(receiver.value, name)(
                *(a.value for a in call.args if isinstance(a, Const))
            )
        except (TypeError, ValueError):
            return Unknown()
        if isinstance(result, list | tuple):
            return Sequence([Const(item) for item in result], type(result).__name__)
        return Const(result)
    return unknown_result(call)


@method("Unknown", "lower", "casefold", "strip")
def normalize_text(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """An option is assumed to be written in its normal form, so that tests of both agree."""
    if call.args or call.kwargs or call.open:
        return call_unknown(run, Unknown(origin=f"{receiver.origin}.{name}"), call)
    return receiver


@method("Unknown", "startswith", "endswith")
def test_text(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """A test of a setting: it agrees with the other tests of the same setting."""
    part = constant(run.settle(call.args[0])) if len(call.args) == 1 else None
    is_setting = receiver.origin and not (receiver.varying or receiver.by_rank)
    if not isinstance(part, str) or not is_setting or receiver.by_process:
        return call_unknown(run, Unknown(origin=f"{receiver.origin}.{name}"), call)
    key = f"{receiver.origin}.{name}({part!r})"
    return Condition(key, run.text(call.node), False, receiver.origin, name, part)

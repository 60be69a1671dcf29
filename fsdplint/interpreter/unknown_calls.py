"""Calls of functions that cannot be followed."""

from __future__ import annotations

import re
from functools import partial

import libcst as cst

from fsdplint.interpreter import (
    gradient_writes,
    lazy,
    library_parts,
    meta_device,
    unfinished_saves,
    unknown_entries,
    unseeded,
)
from fsdplint.interpreter.amounts import amount_of, note
from fsdplint.interpreter.branch_sides import execute_sides
from fsdplint.interpreter.dispatch import calls
from fsdplint.interpreter.escape import escape, forget_passed_states
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.functions import call_function
from fsdplint.interpreter.library_classes import is_report, only_reads
from fsdplint.interpreter.local_libraries import works_within_process
from fsdplint.interpreter.merging import derives_from_argument, join_returned
from fsdplint.interpreter.mesh_positions import note_chunks
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.models.distributed import note_reduction
from fsdplint.interpreter.models.randomness import note_unknown_call
from fsdplint.interpreter.models.registry import METHODS, find_object_method
from fsdplint.interpreter.modules import as_module
from fsdplint.interpreter.optimizers import lose_optimizer, optimizer_by_parameters
from fsdplint.interpreter.parameter_marks import remove_hooks
from fsdplint.interpreter.rank_agreement import note_agreement
from fsdplint.interpreter.ranks import depends_on_rank, value_by_name
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.seeds import note_seed
from fsdplint.interpreter.torch_values import NameTest, ParameterName, RankValue, TensorValue
from fsdplint.interpreter.training_modes import forget_modes
from fsdplint.interpreter.transformers_models import part_of_transformers
from fsdplint.interpreter.values import (
    Bound,
    Const,
    Dict,
    Function,
    Method,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
)
from fsdplint.trace import EpochSet, Escaped, PickedByRank, RunElsewhere, Sharded

# Methods that select a part.
PICKS = {"narrow", "select", "index_select", "shard", "skip", "take", "split", "chunk", "iloc"}


# Methods that only modules and optimizers have.
_STATES = {"state_dict", "load_state_dict"}


# Unknown callees that get an optimizer and certainly do not change its parameters.
_LEAVES_OPTIMIZERS = re.compile(r"sched|warmup|^(unscale_|step|update|info|debug|print)$", re.I)


# Methods of tensors and batches that copy them to a device.
_MOVES = {"cuda", "to", "xpu"}
# Methods that get another tensor and that only tensors have: they do not communicate.
_OF_TENSORS = frozenset(
    "bmm div div_ eq expand_as index_select lerp lerp_ masked_fill masked_fill_ matmul mm mul mul_ "
    "ne reshape_as sub sub_ to type_as view_as".split()
)


# Functions without arguments that give the same answer at all times.
# Functions that call what they get when a signal arrives, or at the end of the program.
_CALLS_LATER = frozenset({"add_signal_handler", "atexit.register", "signal.signal"})
_SETTLED = re.compile(r"(accelerate|importlib|lightning|os|platform|sys|torch|transformers)\.")


# Functions that certainly do not wait for another rank.
_NEVER_WAITS = re.compile(
    r"(os\.path|pathlib|random|torch(?!\.distributed|\.multiprocessing))\.|builtins\.open$"
)
_ASKS_FOR_FILE = {"exists", "is_dir", "is_file"}  # perhaps until another rank has made it


def _never_waits(name: str) -> bool:
    return works_within_process(name) or _NEVER_WAITS.match(name) is not None


def _library_of(function: Value) -> str:
    """The library function that returned an unknown object whose method is called."""
    return function.library if isinstance(function, Unknown) else ""


def _name_of(function: Value) -> str:
    """The name under which an unknown function was read from an object; "" if there is none."""
    if not isinstance(function, Unknown):
        return ""
    if function.origin or function.owner is None:
        return function.origin.rpartition(".")[2]
    names = (name for name, part in function.owner.parts.items() if part is function)
    return next((name for name in names if name.isidentifier()), "")


def _forget_absent_keys(run: Run, function: Value, call: Call) -> None:
    """A dict gets new keys by its methods and by functions that get it."""
    values = [*call.values]
    if isinstance(function, Unknown) and function.owner is not None:
        if function.owner.parts.get("get") is not function:
            values.append(function.owner)
    for value in values:
        if isinstance(value, Unknown) and value.origin:
            run.decisions.forget_absent(value.origin)


def _method_name(function: Value) -> str:
    if isinstance(function, Method):
        return function.name
    return _name_of(function)


@calls(Value)
def call_unknown(run: Run, function: Value, call: Call) -> Value:
    """Call an unknown function. It may change modules, and call functions, that it gets."""
    _forget_absent_keys(run, function, call)
    function = run.settle(function)
    with run.in_unknown_call(call.node):  # it may consume the iterators that it gets
        if isinstance(function, Method):
            lazy.consume(run, function.receiver)  # `generator.send(...)`
        lazy.consume_arguments(run, call)
    forget_passed_states(run, call)
    of_object = None
    if isinstance(function, Unknown):
        of_object = find_object_method(function.owner, _name_of(function))
    library = function.name if isinstance(function, Symbol) else _library_of(function)
    unseeded.note_call(run, function, library)
    communicates = of_object is None and not (
        (isinstance(function, Symbol) and only_reads(library))
        or works_within_process(library)
        or _method_name(function) in _OF_TENSORS
    )
    for value in call.values if run.has_own_data and communicates else ():
        note_agreement(run.settle(value), seen=False)
        if amount_of(run, run.settle(value)).counts_share:
            note(run, run.settle(value), counts_share=False)
    if isinstance(function, Unknown) and isinstance(function.owner, ParameterName):
        return _of_name(run, function.owner, function, call)
    origin = function.origin if isinstance(function, Unknown) else ""
    name = _name_of(function)
    if isinstance(function, Method):
        name = function.name
    if isinstance(function, Symbol):
        name = function.name.rpartition(".")[2]
        origin = function.name
    unfinished_saves.note_call(run, function, name, call)
    if not is_report(name):
        run.gradients_used_at = len(run.trace.events)  # it may run a backward pass
        gradient_writes.note_unknown_call(run, function, name)
        if name in _ASKS_FOR_FILE or not _never_waits(library):
            run.may_have_waited_at = len(run.trace.events)
    if isinstance(function, Unknown):
        function.called = True
        if of_object is not None:
            return of_object(run, function.owner, name, call)
        if not origin and name == "backward":
            origin = "loss.backward"  # of a value of which nothing is known
        entry = unknown_entries.call_method(run, function.owner, name, call)
        if entry is not None:
            return entry
        if name == "load_state_dict" and _is_load_of_module(call):
            module = as_module(run, function.owner)
            if module is not None:
                return METHODS["ModuleValue", name](run, module, name, call)
        method = METHODS.get(("Unknown", name))
        owner = origin.rpartition(".")[0]
        if method is not None and (owner or function.part_of is not None):
            if function.owner is not None:
                return method(run, run.settle(function.owner), name, call)
        if name == "full_tensor" and not call.args:
            tensors.gather_unseen(run, function, call.node)
        if function.part_of is not None:
            return _call_within(run, function, call)
    _note_effect(run, function, call)
    note_reduction(run, name, call, origin if isinstance(function, Symbol) else "")
    remove_hooks(run, function, call)
    of_library = origin if isinstance(function, Symbol) else name
    optimizer = optimizer_by_parameters(run, of_library, call)
    if optimizer is not None:
        return optimizer
    note_unknown_call(run, name or origin, call)
    if name in ("train", "eval"):
        forget_modes(run)
    meta_device.leave_meta_in_arguments(run, call.values)
    if name == "set_epoch":
        run.emit(EpochSet, call.node)
    picked = None
    if any(depends_on_rank(v) for v in call.values):
        varying = any(isinstance(v, Unknown) and v.varying for v in call.values)
        if name in PICKS or (varying and not is_report(name)):
            picked = run.emit(PickedByRank, call.node)
    if "seed" in name and call.values:
        note_seed(run, call.values[0])
    if not only_reads(function.name if isinstance(function, Symbol) else _library_of(function)):
        escape(run, call)
        if not _LEAVES_OPTIMIZERS.search(name):
            for value in call.values:
                lose_optimizer(run, run.settle(value))
    for value in call.values:
        if origin in _CALLS_LATER or name in _CALLS_LATER:
            _call_back_perhaps(run, value, call.node)
        else:
            call_back(run, value, call.node)
    given = _given_constants(run, function, call)
    result = value_by_name(name, f"{origin}({given})" if origin else "")
    if isinstance(result, Unknown):
        note_chunks(run, of_library, call, result)
        library_parts.note_call(run, function, call, result)
        result.library = function.library if isinstance(function, Unknown) else ""
        result.argument = derives_from_argument(function)
        result.by_rank = _depends_on_rank(function, call)
        result.varying = _answers_anew(run, function, call) or any(
            map(_varies, (function, *call.values))
        )
        if any(isinstance(v, TensorValue) for v in call.values):
            return TensorValue("derived", scaled=True)
        if picked is not None and name in PICKS:
            run.picks[result] = picked.index
    return result


def _of_name(run: Run, name: ParameterName, function: Unknown, call: Call) -> Value:
    """A method of the name of a parameter: `name.endswith(".bias")`, `name.lower()`."""
    if name.parts.get("endswith") is function and len(call.args) == 1 and not call.kwargs:
        ends = run.settle(call.args[0])
        items = ends.items if isinstance(ends, Sequence) and not ends.open else [ends]
        texts = [constant(run.settle(item)) for item in items]
        if texts and all(isinstance(text, str) for text in texts):
            return NameTest(varying=True, texts=tuple(map(str, texts)), at_end=True)
    return ParameterName(varying=True)


def _note_effect(run: Run, function: Value, call: Call) -> None:
    """Note that a loop calls a method of an object out of sight without using the result."""
    is_statement = isinstance(run.executing, cst.Expr) and run.executing.value is call.node
    owner = function.owner if isinstance(function, Unknown) else None
    if run.loop_depth and is_statement and owner is not None:
        owner.changes = True


def _answers_anew(run: Run, function: Value, call: Call) -> bool:
    """Whether a call may return another value in each turn of a loop: what it depends on is out of
    sight, as that of `accumulator.is_last()`."""
    if not run.loop_depth or call.values or call.open:
        return False
    if isinstance(function, Symbol):
        return not _SETTLED.match(function.name)
    return isinstance(function, Unknown)


def _varies(value: Value) -> bool:
    """Whether a value, or an element of a list, differs from turn to turn."""
    if isinstance(value, Sequence):
        return any(map(_varies, value.items))
    return isinstance(value, Unknown) and value.varying


def _given_constants(run: Run, function: Value, call: Call) -> str:
    """The arguments of a call of an unknown object's method, if they are constants.

    `name.startswith("a")` and `name.startswith("b")` are different values. Settings that are read
    from `config.get("a", {})` are those that are read from `config.get("a")`.
    """
    if not isinstance(function, Unknown) or call.kwargs or call.open:
        return ""
    given = call.args
    if _name_of(function) == "get" and len(given) == 2 and _is_empty(run.settle(given[1])):
        given = given[:1]
    constants = [arg.value for arg in given if isinstance(arg, Const)]
    return ", ".join(map(repr, constants)) if len(constants) == len(given) else ""


def _is_empty(value: Value) -> bool:
    """Whether a value is a list, tuple or dict without elements."""
    return isinstance(value, Dict | Sequence) and not (value.items or value.open)


def _depends_on_rank(function: Value, call: Call) -> bool:
    """Whether the result of an unknown call depends on the rank.

    The data that `to` and `cuda` copy to the device of a rank is still the same.
    """
    if isinstance(function, Method) and isinstance(function.receiver, RankValue):
        return True
    if isinstance(function, Unknown) and function.owner is not None:
        called = call.node.func if isinstance(call.node, cst.Call) else None
        if isinstance(called, cst.Attribute) and called.attr.value in _MOVES:
            return depends_on_rank(function.owner)
    return any(depends_on_rank(v) for v in call.values)


def _is_load_of_module(call: Call) -> bool:
    """Whether a module loads a state: no other object's method takes `strict` and `assign`."""
    return len(call.args) > 1 or not call.kwargs.keys().isdisjoint({"strict", "assign"})


def _call_within(run: Run, function: Unknown, call: Call) -> Value:
    """Call a submodule or method of a module of unknown class.

    A part of it whose state is taken or loaded is a module.
    """
    name = _name_of(function)
    layer = part_of_transformers(run, function, name)
    if layer is not None:
        return run.call(layer, call)
    if name in _STATES and isinstance(run.settle(function.owner or function), Unknown):
        part = as_module(run, function.owner)
        if part is not None:
            return METHODS["ModuleValue", name](run, part, name, call)
    escape(run, call)
    return TensorValue("output")


def _call_back_perhaps(run: Run, value: Value, node: cst.CSTNode) -> None:
    """Execute a function that is called at any time later, or never: what it assigns may be so."""

    def called() -> None:
        call_back(run, value, node)

    execute_sides(run, lambda: None, called, partial(join_returned, None))


def call_back(run: Run, value: Value, node: cst.CSTNode) -> None:
    """Execute a function of the project that is passed to unknown code, which may call it.

    If not all ranks pass it, it is not executed: nothing that it does would be certain.
    """
    if run.ranks().partial:
        return
    value = run.settle(value)
    receiver = None
    if isinstance(value, Partial):
        value = run.settle(value.function)
    if isinstance(value, Bound):
        receiver, value = value.receiver, value.function
    if not isinstance(value, Function) or value.node in run.reached:
        return
    known, begin = set(run.trace.modules), len(run.trace.events)
    run.emit(RunElsewhere, node)
    with run.in_unknown_call(node):
        lazy.consume(run, call_function(run, value, receiver, [], {}, node))
    run.emit(RunElsewhere, node)
    for event in run.trace.events[begin:]:
        if isinstance(event, Sharded) and event.module in known:
            run.trace.modules[event.module].escaped = True
            run.emit(Escaped, node, module=event.module)

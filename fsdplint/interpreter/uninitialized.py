"""Parameters that `to_empty` gave memory and that nothing has initialised since.

Any code that gets the modules or their parameters may initialise them, unless it is known that it
does not.
"""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.library_classes import only_reads
from fsdplint.interpreter.local_libraries import works_within_process
from fsdplint.interpreter.module_tree import sharding_inside
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import is_in_try
from fsdplint.interpreter.torch_values import ModulesOf, ParametersOf, StateValue
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Dict,
    Function,
    Instance,
    Method,
    ModuleValue,
    OptimizerValue,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.source.source import NodeSite
from fsdplint.trace import (
    Called,
    Escaped,
    Event,
    GradMode,
    Loaded,
    Sharding,
    StateLoaded,
    WeightsSet,
)

# Functions that initialise nothing, and methods of modules and parameters that initialise nothing.
READING_FUNCTIONS = (
    "builtins.", "torch.distributed.fsdp.", "torch.optim.", "torch.nn.utils.clip_grad",
    "torch.distributed.algorithms._checkpoint.", "torch.utils.data.", "torch.no_grad",
    "torch.compile", "torch.save", "logging.", "torch.distributed.checkpoint.save",
    "torch.distributed.checkpoint.state_dict.get_", "torch.zeros_like", "torch.ones_like",
    "torch.empty_like", "torch.full_like", "torch.clone", "torch.numel", "torch.is_",
)  # fmt: skip
# Functions and methods that give parameters the values of a state. Each makes an event.
LOADING_FUNCTIONS = (
    "torch.distributed.checkpoint.load",
    "torch.distributed.checkpoint.state_dict.set_",
)
LOADING_METHOD = "load_state_dict"
READING_METHODS = frozenset(
    "to cuda cpu to_empty half bfloat16 float train eval parameters named_parameters modules "
    "named_modules children named_children buffers named_buffers requires_grad_ zero_grad compile "
    "unshard reshard state_dict numel size dim items values keys get_submodule get_parameter "
    "set_requires_gradient_sync set_reshard_after_forward set_reshard_after_backward "
    "set_modules_to_forward_prefetch set_modules_to_backward_prefetch "
    "set_gradient_divide_factor set_requires_all_reduce set_is_last_backward "
    "detach clone nelement element_size is_floating_point register_hook "
    "register_post_accumulate_grad_hook".split()
)


def begin(run: Run, module: ModuleValue) -> None:
    """`to_empty` of a module with parameters that are certainly on the meta device."""
    if run.guards:
        return
    for part in run.trace.submodules(module.id):
        held, info = run.objects.get(part), run.trace.modules[part]
        opaque = part == module.id and not info.children_known and info.own_parameters is None
        if isinstance(held, ModuleValue) and held.must_be_meta:
            if info.own_parameters is True or opaque:
                run.uninitialized.add(part)
    run.emptied_at = len(run.trace.events)


def forget(run: Run) -> None:
    """From here on, the parameters may have values."""
    run.uninitialized.clear()


def note_call(run: Run, function: Value, call: Call) -> None:
    """A function is called, which may initialise parameters."""
    if run.uninitialized and not _reads_only(run, function, call):
        forget(run)


def _reads_only(run: Run, function: Value, call: Call) -> bool:
    function = run.settle(function)
    if isinstance(function, Partial):
        return _reads_only(run, function.function, call)
    if isinstance(function, ModuleValue | Function | Class | Bound):
        return True  # what it does is executed
    if isinstance(function, Symbol) and function.name.startswith(
        READING_FUNCTIONS + LOADING_FUNCTIONS
    ):
        return True
    if isinstance(function, Unknown) and function.part_of is not None:
        return _is_reading(function.origin.rpartition(".")[2])  # a method that is not followed
    if isinstance(function, Unknown) and _may_hold_model(run, function):
        return False
    if isinstance(function, Method):
        receiver = run.settle(function.receiver)
        if isinstance(receiver, OptimizerValue | ModuleValue) and function.name == LOADING_METHOD:
            return True
        if isinstance(receiver, OptimizerValue) or _is_copy(receiver):
            return True
        if _concerns(run, receiver):
            if function.name == "apply":
                return all(isinstance(run.settle(value), Function) for value in call.values)
            return _is_reading(function.name)
    return not any(_concerns(run, value) for value in call.values)


def _may_hold_model(run: Run, method: Unknown) -> bool:
    """Whether a method may be that of an object that got the model before."""
    if method.owner is None or only_reads(method.library) or works_within_process(method.library):
        return False
    family = {one for part in run.uninitialized for one in run.trace.family(part)}
    return any(one.module in family for one in run.trace.of(Escaped))


def _is_reading(name: str) -> bool:
    return name in READING_METHODS or name.startswith("register_")


def _concerns(run: Run, value: Value, depth: int = 0) -> bool:
    """Whether a value is, or gives access to, a module or its parameters."""
    value = run.settle(value)
    if isinstance(value, ModuleValue | ModulesOf | ParametersOf | StateValue):
        return not _is_copy(value)
    parts: list[Value] = []
    if isinstance(value, Sequence):
        parts = value.items
    elif isinstance(value, Dict):
        parts = [*value.items.values(), *value.tensors.values()]
    elif isinstance(value, Instance):
        parts = list(value.attributes.values())
    elif isinstance(value, Bound | Method):
        parts = [value.receiver]
    return depth <= 2 and any(_concerns(run, part, depth + 1) for part in parts)


def _is_copy(value: Value) -> bool:
    """Whether a value is computed from parameters, such as a clone. A view of one is no copy, but
    the method that makes it may initialise the parameter."""
    return isinstance(value, ParametersOf) and value.derived


def note_training_call(run: Run, module: ModuleValue, event: Called) -> None:
    """Note in an outermost call of a module whether its parameters have values, and from where."""
    if not _is_certain(run, module, event):
        return
    since = run.trace.events[run.emptied_at :]
    if any(isinstance(one, WeightsSet) for one in since):
        return
    loads = tuple(one.index for one in since if _may_give_values(one, since))
    event.uninitialized, event.only_loaded_by = not loads, loads


def _may_give_values(event: Event, since: list[Event]) -> bool:
    """Whether an event may give parameters the values of a file.

    `torch.load` does not, unless its result is loaded into a module: it also reads datasets.
    """
    if not isinstance(event, Loaded) or event.collective:
        return isinstance(event, StateLoaded | Loaded)
    states = {event.state, *event.states}
    return any(isinstance(one, StateLoaded) and one.state in states for one in since)


def _is_certain(run: Run, module: ModuleValue, event: Called) -> bool:
    """Whether only events may have given values to parameters of a module that is trained."""
    family = set(run.trace.submodules(module.id))
    if not run.uninitialized & family or event.grad is not GradMode.ON:
        return False
    site = event.site
    if not isinstance(site, NodeSite) or is_in_try(run.source, site.node):
        return False
    return sharding_inside(run, module) is Sharding.FSDP2 and _is_in_sight(run, module)


def _is_in_sight(run: Run, module: ModuleValue) -> bool:
    """Whether no code out of sight got the module since its parameters have new memory.

    Values that code out of sight gave them before are lost.
    """
    trace, family = run.trace, run.trace.family(module.id)
    if not trace.complete:
        return False
    since = trace.events[run.emptied_at :]
    return not any(isinstance(one, Escaped) and one.module in family for one in since)

"""FSDP1: FullyShardedDataParallel, its static methods and contexts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.choices import guards_of
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.freezing import has_trained_adapters
from fsdplint.interpreter.models.module_wrappers import wrap
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.models.type_tests import module_is
from fsdplint.interpreter.module_attributes import certainly_lacks
from fsdplint.interpreter.module_tree import child_values, sharding_inside
from fsdplint.interpreter.modules import (
    as_module,
    assume_sharding,
    new_module,
    submodule_values,
)
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ModulesOf
from fsdplint.interpreter.values import (
    Class,
    Const,
    Context,
    Dict,
    Function,
    LibraryObject,
    ModuleValue,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import Fsdp1Used, PolicyCalled, Sharding, Wrapped
from fsdplint.trace.arguments import Arguments

FSDP1 = "torch.distributed.fsdp.FullyShardedDataParallel"
OFFLOAD = "torch.distributed.fsdp.CPUOffload"
# The order of the constructor's parameters (torch 2.0 to 2.13).
PARAMETERS = (
    "module", "process_group", "sharding_strategy", "cpu_offload", "auto_wrap_policy",
    "backward_prefetch", "mixed_precision", "ignored_modules", "param_init_fn", "device_id",
    "sync_module_states", "forward_prefetch", "limit_all_gathers", "use_orig_params",
    "ignored_states", "device_mesh",
)  # fmt: skip


def option(value: Value) -> object:
    """The value of an option in a trace: a constant, a dotted name, or "?".

    A `CPUOffload` includes its argument, as the recorder writes it.
    """
    if isinstance(value, LibraryObject) and value.name == OFFLOAD and not value.open:
        offloads = constant(value.get("offload_params", "0") or Const(False))
        return f"{value.name}(offload_params={offloads if isinstance(offloads, bool) else '?'})"
    if isinstance(value, Const) or (isinstance(value, Unknown) and value.is_default):
        return constant(value)
    if isinstance(value, Symbol | LibraryObject):
        return value.name
    if isinstance(value, Partial):
        return f"functools.partial({option(value.function)})"
    if isinstance(value, Function | Class):
        return value.name
    return "?"


@function(FSDP1)
def constructor(run: Run, name: str, call: Call) -> Value:
    # Its argument is a module even if it is unknown, and its result is a wrapper.
    module = as_module(run, call.arg(0, "module")) or new_module(
        run, call.node, "model", children_known=False
    )
    given = dict(zip(PARAMETERS, call.args, strict=False)) | call.kwargs
    given.pop("module", None)
    wrapper = wrap(run, module, "FullyShardedDataParallel", "fsdp1", call)
    wrapper.attributes["*options"] = LibraryObject(name, given, call.open)
    policy = given.get("auto_wrap_policy")
    # A call with other arguments raises TypeError: what it is meant to wrap is not known.
    unknown = call.open or not set(given) <= set(PARAMETERS)
    own: dict[str, dict[str, Value]] = {}
    outside: list[str] = []
    units = None if unknown else _units(run, module, policy, call.node, own, outside)
    with run.under_guards(guards_of(run, given.get("sharding_strategy"))):
        event = run.emit(
            Wrapped,
            call.node,
            module=wrapper.id,
            inner=module.id,
            options={key: option(value) for key, value in given.items()}
            | ({"**": "?"} if call.open else {}),
            units=tuple(unit.id for unit in units) if units is not None else None,
            outside=tuple(outside) if units is None else (),
            mixes=(units is not None and _mixes_frozen(run, module, units, given))
            or (not call.open and _mixes_adapters(run, module, given)),
            keeps_rest=not call.open and _keeps_rest(run, given),
            mesh=_mesh(run, given.get("device_mesh")),
            not_classes=_not_classes(run, policy),
            collective=True,
        )
    _describe_own(run, event, own, call)
    return wrapper


def _describe_own(run: Run, event: Wrapped, own: dict[str, dict[str, Value]], call: Call) -> None:
    """Describe the arguments of the units to which a CustomPolicy gives some of their own."""
    given = run.trace.arguments.get(event.index)
    if given is None or run.project.describe is None:
        return
    for unit, values in own.items():
        # The call of the constructor does not write these values.
        found = run.project.describe(Call(cst.Ellipsis(), [], values))
        every = Arguments({**given.given, **found.given}, given.complete)
        run.trace.unit_arguments[event.index, unit] = every


WRAP = "torch.distributed.fsdp.wrap"


Answer = bool | dict[str, Value] | None  # of a policy; the dict holds arguments for the unit
Test = Callable[[ModuleValue], Answer]
_GIVEN_BY_FSDP = ("module", "recurse", "nonwrapped_numel")


@function(f"{WRAP}.transformer_auto_wrap_policy", f"{WRAP}.size_based_auto_wrap_policy",
          f"{WRAP}.lambda_auto_wrap_policy")  # fmt: skip
def policy_call(run: Run, name: str, call: Call) -> Value:
    """A policy function, which FSDP1 calls with a module."""
    if not call.open and not call.args and not set(call.kwargs) & set(_GIVEN_BY_FSDP):
        run.emit(PolicyCalled, call.node, api=name.rpartition(".")[2])
    return Unknown()


def _units(
    run: Run,
    inner: ModuleValue,
    policy: Value | None,
    node: cst.CSTNode,
    own: dict[str, dict[str, Value]],
    outside: list[str],
) -> list[ModuleValue] | None:
    """The modules that a policy wraps separately; None if unknown.

    own: gets the arguments that the policy gives single units, by module. outside: gets the modules
    that it certainly does not wrap separately.
    """
    policy = run.settle(policy) if policy is not None else None
    if policy is None or is_none(policy):
        return []
    test = _test(run, policy, node)
    if test is None:
        return None
    found = []
    known = True
    for part in submodule_values(run, ModulesOf(inner, "modules"))[1:]:
        answer = test(part) if isinstance(part, ModuleValue) else None
        if not isinstance(part, ModuleValue) or answer is None:
            known = False
        elif answer:
            found.append(part)
            if isinstance(answer, dict):
                own[part.id] = answer
        else:
            outside.append(part.id)
    return found if known else None


def _test(run: Run, policy: Value, node: cst.CSTNode) -> Test | None:
    """The test of a policy, by class or by a function of the program; None if unknown."""
    kinds = _classes(run, policy)
    if kinds is not None:
        return functools.partial(_is_one_of, run, kinds)
    if isinstance(policy, Partial) and option(policy.function) == f"{WRAP}._or_policy":
        return _any_of(run, policy.kwargs.get("policies"), node)
    if isinstance(policy, Function) or (
        isinstance(policy, Partial) and isinstance(policy.function, Function)
    ):
        return functools.partial(_refuses, run, policy, node)
    given = None
    if isinstance(policy, LibraryObject) and policy.name == f"{WRAP}.CustomPolicy":
        given = policy.get("0", "lambda_fn")
    elif (
        isinstance(policy, Partial) and option(policy.function) == f"{WRAP}.lambda_auto_wrap_policy"
    ):
        given = policy.kwargs.get("lambda_fn")
    given = run.settle(given) if given is not None else None
    if isinstance(given, Function):
        return functools.partial(_call_policy, run, given, node)
    return None


def _refuses(run: Run, policy: Value, node: cst.CSTNode, part: ModuleValue) -> bool | None:
    """False if a policy of three parameters certainly does not wrap a module.

    Whether it does depends on its answer for the modules above, and on the number of parameters.
    """
    given = {"module": part, "recurse": Const(False), "nonwrapped_numel": Unknown()}
    answer = constant(run.call(policy, Call(node, [], given)))
    return False if answer is False else None


def _any_of(run: Run, policies: Value | None, node: cst.CSTNode) -> Test | None:
    """The test of `_or_policy`: any of its policies."""
    policies = run.settle(policies) if policies is not None else None
    if not isinstance(policies, Sequence) or policies.open:
        return None
    tests = [_test(run, run.settle(one), node) for one in policies.items]
    known = [test for test in tests if test is not None]

    def matches(part: ModuleValue) -> Answer:
        answers = [test(part) for test in known]
        return True if any(answers) else (None if None in answers else False)

    return matches if len(known) == len(tests) else None


def _is_one_of(run: Run, kinds: list[Value], part: ModuleValue) -> bool | None:
    answers = [module_is(run, part, kind) for kind in kinds]
    return True if True in answers else (None if None in answers else False)


def _call_policy(run: Run, function: Function, node: cst.CSTNode, part: ModuleValue) -> Answer:
    answer = run.settle(run.call(function, Call(node, [part])))
    if isinstance(answer, Dict):
        named = {key: value for key, value in answer.items.items() if isinstance(key, str)}
        return named if not answer.open and len(named) == len(answer.items) else None
    found = constant(answer)
    return found if isinstance(found, bool) else None


def _mesh(run: Run, value: Value | None) -> str | None:
    """The name in the trace of a mesh from `init_device_mesh`; None for other values."""
    value = run.settle(value) if value is not None else None
    name = constant(value.get("id")) if isinstance(value, LibraryObject) else None
    return name if isinstance(name, str) else None


def _ignores(run: Run, given: dict[str, Value]) -> bool:
    """Whether FSDP1 may leave parameters out of its units."""
    ignored = (run.settle(value) for name, value in given.items() if name.startswith("ignored_"))
    return not all(is_none(value) or _is_empty(value) for value in ignored)


def _is_empty(value: Value) -> bool:
    return isinstance(value, Sequence) and not value.items and not value.open


def _mixes_adapters(run: Run, inner: ModuleValue, given: dict[str, Value]) -> bool:
    """Whether a flat parameter certainly has frozen layers together with their adapters."""
    original = given.get("use_orig_params")
    if original is not None and constant(original) is not False:
        return False
    if _ignores(run, given) or not has_trained_adapters(run, inner):
        return False
    return _keeps_rest(run, given)


def _keeps_rest(run: Run, given: dict[str, Value]) -> bool:
    """Whether the policy wraps blocks of models only, or nothing."""
    policy = given.get("auto_wrap_policy")
    policy = run.settle(policy) if policy is not None else None
    if policy is None or is_none(policy):
        return True
    kinds = _classes(run, policy)
    return kinds is not None and all(
        isinstance(kind, Class)
        or (isinstance(kind, Symbol) and not kind.name.startswith(("torch.nn.", "peft.")))
        for kind in kinds
    )


def _classes(run: Run, policy: Value) -> list[Value] | None:
    """The classes that a policy wraps; None if it has another test, or they are unknown."""
    given = _given_classes(run, policy)
    if not isinstance(given, Sequence) or given.open:
        return None
    return [run.settle(kind) for kind in given.items]


def _not_classes(run: Run, policy: Value | None) -> str:
    """What a policy certainly has instead of a set of classes: see `Wrapped.not_classes`."""
    given = _given_classes(run, run.settle(policy)) if policy is not None else None
    if isinstance(given, Class):
        return "one class"
    for kind in given.items if isinstance(given, Sequence) else ():
        kind = run.settle(kind)
        if isinstance(constant(kind), str):
            return "names"
        if isinstance(kind, ModuleValue):
            return "instances"
    return ""


def _given_classes(run: Run, policy: Value) -> Value | None:
    """What a policy that tests the class of modules has as classes; None for other policies."""
    given = None
    if isinstance(policy, LibraryObject) and policy.name == f"{WRAP}.ModuleWrapPolicy":
        given = policy.get("0", "module_classes")
    elif (
        isinstance(policy, Partial)
        and option(policy.function) == f"{WRAP}.transformer_auto_wrap_policy"
    ):
        given = policy.kwargs.get("transformer_layer_cls")
    return run.settle(given) if given is not None else None


def _mixes_frozen(
    run: Run, inner: ModuleValue, units: list[ModuleValue], given: dict[str, Value]
) -> bool:
    """Whether a flat parameter certainly mixes parameters with and without gradients."""
    original = given.get("use_orig_params")
    if original is not None and constant(original) is not False:
        return False
    if _ignores(run, given) or run.trace.family_escaped(inner.id):
        return False
    apart = {unit.id for unit in units}
    for root in [inner, *units]:
        frozen = trainable = False
        stack = [root]
        while stack:
            module = stack.pop()
            info = run.trace.modules[module.id]
            if info.own_parameters:
                frozen = frozen or module.some_frozen
                trainable = trainable or not info.frozen
            below = child_values(run, module)
            stack.extend(m for m in below if m.id not in apart and m.wrapper != "fsdp1")
        if frozen and trainable:
            return True
    return False


def emit_use(run: Run, api: str, call: Call, *, collective: bool = False) -> ModuleValue | None:
    """Record the use of a static method, and return its first argument, a module.

    On an FSDP2 module the method does nothing, so it does not communicate.
    """
    module = as_module(run, call.arg(0, "module") or call.arg(0, "model"))
    if module is not None and assume_sharding(run, module, Sharding.FSDP1):
        module.may_be_plain = True
    if module is not None and sharding_inside(run, module) is Sharding.FSDP2:
        collective = False
    run.emit(
        Fsdp1Used,
        call.node,
        api=api,
        module=module.id if module is not None else None,
        collective=collective,
    )
    return module


@function(f"{FSDP1}.state_dict_type")
def state_dict_type(run: Run, name: str, call: Call) -> Value:
    module = emit_use(run, "state_dict_type", call)
    return Context("state_dict_type", module, _types(call))


@function(f"{FSDP1}.set_state_dict_type")
def set_state_dict_type(run: Run, name: str, call: Call) -> Value:
    module = emit_use(run, "set_state_dict_type", call)
    if module is not None:
        module.attributes["*state_dict_type"] = Context("state_dict_type", module, _types(call))
    return Unknown()


def _types(call: Call) -> dict[str, Value]:
    names = ("state_dict_type", "state_dict_config", "optim_state_dict_config")
    values = {name: call.arg(number, name) for number, name in enumerate(names, 1)}
    return {name: value for name, value in values.items() if value is not None}


@function(f"{FSDP1}.summon_full_params")
def summon(run: Run, name: str, call: Call) -> Value:
    module = emit_use(run, "summon_full_params", call, collective=True)
    return Context("summon_full_params", module)


@method("fsdp1", "summon_full_params", "state_dict_type", "set_state_dict_type", "optim_state_dict",
        "optim_state_dict_to_load", "fsdp_modules", "full_optim_state_dict",
        "scatter_full_optim_state_dict", "shard_full_optim_state_dict",
        "sharded_optim_state_dict")  # fmt: skip
def static_by_instance(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """A static method called through the wrapped model."""
    return run.call(Symbol(f"{FSDP1}.{name}"), call)


@function(f"{FSDP1}.fsdp_modules")
def fsdp_modules(run: Run, name: str, call: Call) -> Value:
    module = emit_use(run, "fsdp_modules", call)
    return ModulesOf(module, "modules") if module is not None else Unknown()


@function(f"{FSDP1}.get_state_dict_type", f"{FSDP1}.rekey_optim_state_dict")
def static_query(run: Run, name: str, call: Call) -> Value:
    emit_use(run, name.rpartition(".")[2], call)
    return Unknown()


@method("ModuleValue", "summon_full_params")
def summon_of_fsdp2(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """A method of FSDP1 on a module without a wrapper of FSDP1."""
    fsdp2 = sharding_inside(run, receiver) is Sharding.FSDP2
    if fsdp2 and certainly_lacks(run, receiver, name):
        run.emit(Fsdp1Used, call.node, api=name, module=receiver.id)
    return Context("summon_full_params", receiver)


@method("fsdp1", "register_comm_hook", "check_is_root", "apply", "flatten_sharded_optim_state_dict")
def fsdp1_method(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    run.emit(Fsdp1Used, call.node, api=name, module=receiver.id, collective=name == "apply")
    return Unknown()


@function("torch.distributed.fsdp.wrap.enable_wrap")
def enable_wrap(run: Run, name: str, call: Call) -> Value:
    run.emit(Fsdp1Used, call.node, api="enable_wrap", module=None)
    details = dict(call.kwargs)
    if call.open:
        details["**"] = Unknown()
    return Context("enable_wrap", None, details)


@function("torch.distributed.fsdp.wrap.wrap")
def wrap_in_block(run: Run, name: str, call: Call) -> Value:
    """`FSDP(module, ...)` with the arguments of the `enable_wrap` block that it runs in."""
    module = as_module(run, call.arg(0, "module"))
    for context in reversed(run.contexts):
        if isinstance(context, Context) and context.kind == "enable_wrap":
            given = context.details | call.kwargs
            wrapper = run.settle(given.pop("wrapper_cls", Unknown()))
            unseen = given.pop("**", None) is not None or call.open
            if module is not None and isinstance(wrapper, Symbol) and wrapper.name == FSDP1:
                return run.call(wrapper, replace(call, kwargs=given, open=unseen))
            break
    run.emit(Fsdp1Used, call.node, api="wrap", module=module.id if module is not None else None)
    return module if module is not None else Unknown()

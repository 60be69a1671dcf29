"""The wrap policies of FSDP1: which modules they make units."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.models.type_tests import module_is
from fsdplint.interpreter.modules import LISTS, submodule_values
from fsdplint.interpreter.option_texts import option
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ModulesOf
from fsdplint.interpreter.values import (
    Class,
    Const,
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
from fsdplint.trace import PolicyCalled

WRAP = "torch.distributed.fsdp.wrap"
Answer = bool | dict[str, Value] | None  # of a policy; the dict holds arguments for the unit
Test = Callable[[ModuleValue], Answer]
_CLASS_NAME = re.compile(r"[A-Z][A-Z0-9]*[a-z]\w*$")  # of a library: no constant has such a name
_GIVEN_BY_FSDP = ("module", "recurse", "nonwrapped_numel")


@function(f"{WRAP}.transformer_auto_wrap_policy", f"{WRAP}.size_based_auto_wrap_policy",
          f"{WRAP}.lambda_auto_wrap_policy")  # fmt: skip
def policy_call(run: Run, name: str, call: Call) -> Value:
    """A policy function, which FSDP1 calls with a module."""
    if not call.open and not call.args and not set(call.kwargs) & set(_GIVEN_BY_FSDP):
        run.emit(PolicyCalled, call.node, api=name.rpartition(".")[2])
    return Unknown()


def units_of(
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
    if isinstance(policy, Symbol) and policy.name == f"{WRAP}.always_wrap_policy":
        # FSDP1 wraps lists of modules, too, but never gathers what has no forward.
        return lambda part: part.library_class not in LISTS
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


def keeps_rest(run: Run, given: dict[str, Value]) -> bool:
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


def not_classes(run: Run, policy: Value | None) -> str:
    """What a policy certainly has instead of a set of classes: see `Wrapped.not_classes`."""
    given = _given_classes(run, run.settle(policy)) if policy is not None else None
    if isinstance(given, Class) or (
        isinstance(given, Symbol) and _CLASS_NAME.match(given.name.rpartition(".")[2])
    ):
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

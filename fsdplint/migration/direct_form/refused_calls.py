"""Calls of FSDP1 that raise TypeError, and what their author means.

    policy(layers={Block})                       a policy that is called instead of bound
    policy(model, layers={Block})                also with the module that FSDP gives it
    FSDP(model, device_ids=[rank])               arguments of DistributedDataParallel
    FSDP(model, fsdp_auto_wrap_policy=policy)    names of torch 1.11
    FSDP(model, cpu_offload=args.offload)        a flag in place of a CPUOffload
    partial(policy, layers={Block}, size=1000)   arguments that the policy does not have

The meaning counts only if no other one is possible: a policy that gets other arguments by position
stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from fsdplint.fixes.syntax import library_name
from fsdplint.interpreter.values import ModuleValue, Unknown
from fsdplint.migration.constructor.called_policies import raises_type_error
from fsdplint.migration.constructor.policy_kinds import GIVEN, POLICY_PARAMETERS
from fsdplint.migration.direct_form.flags import is_flag
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.names import FSDP, PREFIX

# The arguments of DistributedDataParallel, without those that FSDP1 has.
OF_DDP = {
    *("device_ids", "output_device", "dim", "broadcast_buffers", "init_sync", "bucket_cap_mb"),
    *("find_unused_parameters", "check_reduction", "gradient_as_bucket_view", "static_graph"),
}
RENAMED = {"fsdp_auto_wrap_policy": "auto_wrap_policy"}
OLD_POLICY, NEW_POLICY = "default_auto_wrap_policy", "size_based_auto_wrap_policy"
NOTE = "calls that raise TypeError are read as they are meant"


def rewrite_call(inlining: Inlining, node: cst.Call) -> bool:
    """Write a call of FSDP1 that raises TypeError as it is meant; whether it is one."""
    return (
        _bind_policy(inlining, node)
        or _leave_out_unknown(inlining, node)
        or _give_arguments(inlining, node)
    )


def rewrite_name(inlining: Inlining, node: cst.Name) -> bool:
    """Use the present name of a policy of torch 1.11; whether it is one."""
    if inlining.migration.symbol(node) != f"{PREFIX}.wrap.{OLD_POLICY}":
        return False
    need = inlining.migration.need
    inlining.put(node, need(inlining.source, f"{PREFIX}.wrap", NEW_POLICY, node))
    inlining.migration.note(NOTE, inlining.source, node)
    return True


def _bind_policy(inlining: Inlining, node: cst.Call) -> bool:
    """`policy(layers={Block})` becomes `functools.partial(policy, layers={Block})`.

    So does `policy(model, layers={Block})`: FSDP gives the module, for each that it asks about.
    """
    given = node.args[1:] if _begins_with_module(inlining, node) else node.args
    if not given or any(arg.keyword is None for arg in given):
        return False
    if not raises_type_error(inlining.migration, node):
        return False
    rewrite, source = inlining.migration.rewrite, inlining.source
    partial = library_name(rewrite, source, "functools.partial", node)
    inlining.put_call(node, partial, [inlining.text(node.func), *_texts(inlining, given)])
    inlining.migration.note(NOTE, source, node)
    return True


def _leave_out_unknown(inlining: Inlining, node: cst.Call) -> bool:
    """Leave the arguments out of `functools.partial(policy, ...)` that the policy does not have."""
    migration = inlining.migration
    if migration.symbol(node.func) != "functools.partial" or not node.args:
        return False
    first, *given = node.args
    known = POLICY_PARAMETERS.get(migration.fsdp1(first.value))
    if known is None or any(arg.keyword is None for arg in given):
        return False
    wrong = [arg for arg in given if _name(arg) not in known]
    if not wrong or not all(inlining.meanings.is_inert(arg.value) for arg in wrong):
        return False
    kept = [arg for arg in given if arg not in wrong]
    if not any(_name(arg) in known[len(GIVEN) :] for arg in kept):
        return False
    texts = [inlining.text(first.value), *_texts(inlining, kept)]
    inlining.put_call(node, inlining.text(node.func), texts)
    migration.note(NOTE, inlining.source, node)
    return True


def _begins_with_module(inlining: Inlining, node: cst.Call) -> bool:
    """Whether the first argument of a call, by position, is a module as far as it is known."""
    first = node.args[0] if node.args else None
    if first is None or first.keyword is not None or first.star:
        return False
    values = inlining.migration.values(first.value)
    return inlining.meanings.is_inert(first.value) and all(
        isinstance(value, ModuleValue | Unknown) for value in values
    )


def _give_arguments(inlining: Inlining, node: cst.Call) -> bool:
    """Leave out the arguments of DistributedDataParallel, use the present names of others, and
    make a CPUOffload of a flag."""
    if inlining.migration.fsdp1(node.func) != FSDP:
        return False
    named = {arg.keyword.value: arg for arg in node.args if arg.keyword is not None}
    wrong = set(named) & {*OF_DDP, *RENAMED}
    flag = named.get("cpu_offload")
    if flag is not None and is_flag(inlining.migration, flag.value):
        wrong.add("cpu_offload")
    if not wrong or set(named) & {RENAMED[name] for name in wrong & set(RENAMED)}:
        return False
    if not all(inlining.meanings.is_inert(named[name].value) for name in wrong & OF_DDP):
        return False
    left_out = {*OF_DDP, "cpu_offload"} if "cpu_offload" in wrong else OF_DDP
    given = _texts(inlining, [arg for arg in node.args if _name(arg) not in left_out])
    if flag is not None and "cpu_offload" in wrong:
        need = inlining.migration.need
        offload = need(inlining.source, "torch.distributed.fsdp", "CPUOffload", node)
        given.append(f"cpu_offload={offload}(offload_params={inlining.text(flag.value)})")
    device = _only_element(named.get("device_ids"))
    if device is not None and "device_id" not in named:
        given.append(f"device_id={inlining.text(device)}")
    inlining.put_call(node, inlining.text(node.func), given)
    inlining.migration.note(NOTE, inlining.source, node)
    return True


def _name(arg: cst.Arg) -> str:
    return arg.keyword.value if arg.keyword is not None else ""


def _texts(inlining: Inlining, args: Sequence[cst.Arg]) -> list[str]:
    found = []
    for arg in args:
        name = RENAMED.get(_name(arg), _name(arg))
        found.append((f"{name}=" if name else arg.star) + inlining.text(arg.value))
    return found


def _only_element(arg: cst.Arg | None) -> cst.BaseExpression | None:
    """The element of a list or tuple with one element."""
    value = arg.value if arg is not None else None
    if not isinstance(value, cst.List | cst.Tuple) or len(value.elements) != 1:
        return None
    (element,) = value.elements
    return element.value if isinstance(element, cst.Element) else None

"""Arguments of collectives that torch refuses, or with which the result is lost."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Sequence, Value, constant
from fsdplint.source.positions import code_children, descend
from fsdplint.trace import Ranks

# The list that only the destination, or the source, may pass, by its position and name.
_OF_ONE_RANK = {
    "gather": (1, "gather_list"),
    "gather_object": (1, "object_gather_list"),
    "scatter": (1, "scatter_list"),
}
# The rank that sends or receives, by its position and name, and the position of the group.
_RANKS = {
    "broadcast": (1, "src", 2),
    "broadcast_object_list": (1, "src", 2),
    "gather": (2, "dst", 3),
    "gather_object": (2, "dst", 3),
    "reduce": (1, "dst", 3),
    "scatter": (2, "src", 3),
}
_LISTS = {"all_gather": 0, "gather": 1}  # of tensors that get the results


def wrong_argument(run: Run, api: str, call: Call) -> str:
    """What is wrong with the arguments of a collective; "" if nothing certain.

    "one tensor": all results go to the same tensor. "list": each rank passes what only one may.
    "unread": nothing reads what the other ranks receive. "rank": a rank that only one of several
    groups has sends or receives.
    """
    if call.open or run.ranks() is not Ranks.ALL:
        return ""
    if api in _LISTS:
        given = run.settle(call.arg(_LISTS[api], "tensor_list") or Const(None))
        if _repeats_one(run, given):
            return "one tensor"
    if api in _OF_ONE_RANK and not run.decisions.single_rank:
        given = run.settle(call.arg(*_OF_ONE_RANK[api]) or Const(None))
        if isinstance(given, Sequence) and given.items and not given.chosen:
            return "list"
    if api in _RANKS and _is_of_one_group(run, call, *_RANKS[api]):
        return "rank"
    # A function that no program calls may be there for the rank that sends.
    if api == "broadcast_object_list" and not run.first_event and _is_unread(run, call):
        return "unread"
    return ""


def _is_of_one_group(run: Run, call: Call, position: int, name: str, group: int) -> bool:
    """Whether a call for one of several groups of ranks names a rank of all ranks by its number."""
    rank = constant(call.arg(position, name))
    of = call.arg(group, "group")
    return type(rank) is int and of is not None and run.settle(of) in run.part_groups


def note_repeated(run: Run, made: Value, parts: list[Value]) -> None:
    """Note that a list was made as `[x] * n`."""
    if len(parts) == 1 and not isinstance(run.settle(parts[0]), Const):
        run.repeated_lists[made] = parts[0]


def _repeats_one(run: Run, given: Value) -> bool:
    """Whether all elements of a list are the same object."""
    part = run.repeated_lists.get(given)
    return part is not None and isinstance(given, Sequence) and all(x is part for x in given.items)


def _is_unread(run: Run, call: Call) -> bool:
    """Whether the list of a call is a display in the call, or a name that nothing else reads.

    A name that gets anything else than a display may be another name of a list that is read.
    """
    node = call.node
    if not isinstance(node, cst.Call) or not node.args or node.args[0].star:
        return False
    given = node.args[0].value
    if isinstance(given, cst.List):
        return True
    function = run.frames[-1].function
    if not isinstance(given, cst.Name) or function is None:
        return False
    if run.frames[-1].scope.names.get(given.value) is None:
        return False  # of an outer function
    signature = run.project.signatures.get(function.node)
    if signature is None or given.value in signature.params:
        return False
    body = function.node.body
    return _reads(body, given.value) == 1 and _is_display(body, given.value)


def _is_display(code: cst.CSTNode, name: str) -> bool:
    """Whether each assignment of a variable gives it a new list."""
    values = [
        node.value
        for node in descend(code)
        if isinstance(node, cst.Assign | cst.AnnAssign)
        for target in descend(node)
        if isinstance(target, cst.AssignTarget | cst.AnnAssign)
        if isinstance(target.target, cst.Name) and target.target.value == name
    ]
    return all(isinstance(one, cst.BinaryOperation | cst.List | cst.ListComp) for one in values)


def _reads(node: cst.CSTNode, name: str) -> int:
    """How often code reads a name."""
    if isinstance(node, cst.Name):
        return int(node.value == name)
    if isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name):
        return 0
    if isinstance(node, cst.AnnAssign) and isinstance(node.target, cst.Name):
        return _reads(node.value, name) if node.value is not None else 0
    if isinstance(node, cst.Attribute):
        return _reads(node.value, name)
    return sum(_reads(child, name) for child in code_children(node))

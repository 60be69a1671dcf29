"""The training loop: `no_sync`, `.forward`, the sharded gradient scaler."""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.fixes import no_sync
from fsdplint.interpreter.values import Dict
from fsdplint.migration.analysis.value_uses import Use, Uses
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import (
    FORWARD_AS_VALUE,
    MEMBER_OF_SEVERAL_CLASSES,
    METHOD_AS_VALUE,
    NO_SYNC_LOOKED_FOR,
    SCALER_ARGUMENTS,
    SCALER_GROUP,
    SCALER_NOT_CALLED,
)
from fsdplint.migration.context import Migration, expression, nodes
from fsdplint.migration.rewriters import member_rewriter, rewrites
from fsdplint.migration.symbols import CHANGED, MEMBERS
from fsdplint.migration.training import forward_methods, no_sync_variables, sync_values
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_called, is_constant
from fsdplint.syntax.enclosing import annotation_around
from fsdplint.syntax.layout import descend

SYNC = "Switch gradient synchronisation with set_requires_gradient_sync"


SCALER = (
    "device",
    "init_scale",
    "backoff_factor",
    "growth_factor",
    "growth_interval",
    "enabled",
    "process_group",
)
OF_BOTH = frozenset(SCALER) - {"device", "process_group"}  # keywords of torch.amp's scaler, too


def rewrite_no_sync(migration: Migration, source: Source, node: cst.Call) -> None:
    """Rewrite `with model.no_sync():` to calls of `set_requires_gradient_sync`.

    Raises:
        Blocked: the code asks for `no_sync` of a model that is not known.
    """
    assert isinstance(node.func, cst.Attribute)
    _answer_questions(migration, source, node)
    if no_sync_variables.may_be_others(migration, source, node.func):
        sync_values.rewrite_as_value(migration, source, node)
        migration.step(source, node, SYNC)
        return
    if no_sync_variables.rewrite_under_isinstance(migration, source, node.func):
        migration.step(source, node, SYNC)
        return
    if not _switched_each_time(migration, source, node):
        done = False
        if not no_sync_variables.is_chosen(migration, source, node.func):
            done = no_sync_variables.rewrite_context_variable(migration, source, node.func)
            done = done or no_sync.rewrite_no_sync(migration.rewrite, source, node)
        if not done:
            sync_values.rewrite_as_value(migration, source, node)
    migration.step(source, node, SYNC)


def _answer_questions(migration: Migration, source: Source, node: cst.Call | cst.Attribute) -> None:
    """Ask for FSDP2's class instead of `hasattr(model, "no_sync")`, or for its method as well.

    Raises:
        Blocked: it is not known which models these are.
    """
    for question in nodes(source):
        if not isinstance(question, cst.Call) or not _looks_for_no_sync(question):
            continue
        model = question.args[0].value
        if not isinstance(model, cst.Name | cst.Attribute) or not migration.wrapping_of(model):
            raise Blocked(source, node, NO_SYNC_LOOKED_FOR())
        text = expression(migration, source, model)
        if no_sync_variables.kinds(migration, source, model) == "several":
            name = string_literal(source, sync_values.SWITCH)
            asked = f"({source.code(question)} or hasattr({text}, {name}))"
            migration.substitute(source, question, asked)
            continue
        kind = migration.need(source, "torch.distributed.fsdp", "FSDPModule", question)
        migration.substitute(source, question, f"isinstance({text}, {kind})")


def _looks_for_no_sync(node: cst.Call) -> bool:
    """Whether a call is `hasattr(model, "no_sync")`."""
    if len(node.args) != 2:
        return False
    name = node.args[1].value
    called = isinstance(node.func, cst.Name) and node.func.value == "hasattr"
    return called and isinstance(name, cst.SimpleString) and name.evaluated_value == "no_sync"


def _switched_each_time(migration: Migration, source: Source, node: cst.Call) -> bool:
    """Rewrite `with model.no_sync() if test else nullcontext():` to one call of the setter.

    That is possible if the block contains every backward of the program. Returns whether it is.
    """
    choice = source.parent(node)
    item = source.parent(choice) if isinstance(choice, cst.IfExp) else None
    block = source.parent(item) if isinstance(item, cst.WithItem) else None
    if not isinstance(choice, cst.IfExp) or not isinstance(block, cst.With):
        return False
    if len(block.items) != 1 or choice.test is node or block.items[0].asname is not None:
        return False
    assert isinstance(node.func, cst.Attribute)
    kinds = no_sync_variables.kinds(migration, source, node.func.value)
    asks = any(
        migration.fsdp1(part) or isinstance(part, cst.Call) and _looks_for_no_sync(part)
        for part in descend(choice.test)
    )
    if kinds == "several" or asks:
        return False
    other = choice.orelse if choice.body is node else choice.body
    if not _is_null(migration, other) or not _has_every_backward(migration, block):
        return False
    test = choice.test
    sync = no_sync.negation(source, test) if choice.body is node else source.code(test)
    model = source.code(node.func.value)
    lines = [f"{model}.set_requires_gradient_sync({sync})"]
    if kinds == "or plain":
        kind = migration.need(source, "torch.distributed.fsdp", "FSDPModule", block)
        lines = [f"if isinstance({model}, {kind}):", f"\t{lines[0]}"]
    migration.blocks.unwrapped.add(block)
    migration.unwrap(source, block, lines)
    migration.forget(source, block.items[0])
    return True


def _is_null(migration: Migration, node: cst.BaseExpression) -> bool:
    if not isinstance(node, cst.Call):
        return False
    name = migration.symbol(node.func)
    return name in ("contextlib.nullcontext", "contextlib.suppress", "contextlib.ExitStack")


def _has_every_backward(migration: Migration, block: cst.With) -> bool:
    """Whether a block contains every backward pass of the program."""
    inside = set(descend(block))
    for other in migration.sources:
        for node in nodes(other):
            if (
                isinstance(node, cst.Call)
                and isinstance(node.func, cst.Attribute)
                and node.func.attr.value == "backward"
                and node not in inside
            ):
                return False
    return any(isinstance(node, cst.Attribute) and node.attr.value == "backward" for node in inside)


@rewrites("ShardedGradScaler")
def rewrite_scaler(migration: Migration, source: Source, node: cst.CSTNode, name: str) -> None:
    """Rewrite `ShardedGradScaler(...)` to `torch.amp.GradScaler(...)`.

    Raises:
        Blocked: it has arguments that torch.amp's scaler does not have.
    """
    parent = source.parent(node)
    if not isinstance(parent, cst.Call) or parent.func is not node:
        if annotation_around(source, node) or _is_called_later(migration, source, node):
            migration.account_for(source, node)
            torch = migration.torch(source, node)
            migration.substitute(source, node, f"{torch}.amp.GradScaler")
            migration.step(source, node, "Scale with torch.amp.GradScaler")
            return
        choice = _choice_of_guarded(source, node)
        if choice is None:
            raise Blocked(source, node, SCALER_NOT_CALLED())
        migration.account_for(source, node)
        end = source.span(choice.body)[1]
        migration.substitute_span(source, end, source.span(choice)[1], "")
        return
    named, rest = arguments(parent, SCALER)
    if not all(_spreads_arguments_of_both(migration, arg) for arg in rest):
        raise Blocked(source, node, SCALER_ARGUMENTS())
    group = named.pop("process_group", None)
    if group is not None and not is_constant(group.value, "None"):
        if migration.symbol(group.value) != "torch.distributed.group.WORLD":
            raise Blocked(
                source,
                group,
                SCALER_GROUP(),
            )
    given = [] if "device" in named else [string_literal(source, "cuda")]
    for name, arg in named.items():
        text = expression(migration, source, arg.value)
        given.append(text if name == "device" else f"{name}={text}")
    given += [f"**{expression(migration, source, arg.value)}" for arg in rest]
    torch = migration.torch(source, node)
    migration.account_for(source, node)
    migration.put_call(source, parent, f"{torch}.amp.GradScaler", given)
    migration.step(source, node, "Scale with torch.amp.GradScaler")


def _spreads_arguments_of_both(migration: Migration, arg: cst.Arg) -> bool:
    """Whether an argument is `**options` with options that both scalers have."""
    values = migration.values(arg.value) if arg.star == "**" else []
    return bool(values) and all(
        isinstance(one, Dict) and not one.open and one.items.keys() <= OF_BOTH for one in values
    )


def _is_called_later(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    """Whether the class is a value that other code only calls, with arguments of both scalers."""
    uses = Uses(migration).of(source, node)
    return bool(uses) and all(_calls_as_both(use) for use in uses)


def _calls_as_both(use: Use) -> bool:
    """Whether a use is a call with arguments that both scalers take.

    By position, they take only the first two in the same order.
    """
    call = use.place
    if not isinstance(call, cst.Call) or call.func is not use.node:
        return False
    if any(arg.star for arg in call.args):
        return False
    keywords = [arg.keyword.value for arg in call.args if arg.keyword is not None]
    return len(call.args) - len(keywords) <= 2 and "process_group" not in keywords


def _choice_of_guarded(source: Source, name: cst.CSTNode) -> cst.IfExp | None:
    """`X() if X is not None else other()` around the tested name of a guarded import."""
    test, parent = name, source.parent(name)
    if isinstance(parent, cst.Comparison) and parent.left is name and len(parent.comparisons) == 1:
        (target,) = parent.comparisons
        if isinstance(target.operator, cst.IsNot) and is_constant(target.comparator, "None"):
            test, parent = parent, source.parent(parent)
    if not isinstance(parent, cst.IfExp) or parent.test is not test:
        return None
    made = parent.body
    is_made = isinstance(made, cst.Call) and source.code(made.func) == source.code(name)
    return parent if is_made else None


def check_attribute(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Block on a method or attribute of an FSDP1 module with another meaning in FSDP2.

    Raises:
        Blocked: with the reason.
    """
    name = node.attr.value
    member = MEMBERS.get(name)
    if member is not None and member.calls_only and not is_called(source, node):
        _method_as_value(migration, source, node)
    elif member is not None and member.blocker is not None:
        internal = "attribute" if member.private else ""
        raise Blocked(source, node, member.blocker(name=name), internal=internal)
    elif (rewriter := member_rewriter(name)) is not None:
        rewriter(migration, source, node)
    elif member is None and is_called(source, node):
        forward_methods.rewrite(migration, source, node, node.value)


def _method_as_value(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Rewrite or block a method that is used without a call."""
    if node.attr.value != "no_sync":
        raise Blocked(source, node, METHOD_AS_VALUE(name=node.attr.value))
    _answer_questions(migration, source, node)
    if not no_sync_variables.rewrite_under_isinstance(migration, source, node):
        done = not no_sync_variables.is_chosen(
            migration, source, node
        ) and no_sync_variables.rewrite_context_variable(migration, source, node)
        if not done:
            sync_values.rewrite_as_value(migration, source, node)
    migration.step(source, node, SYNC)


def check_one_of_several(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Block on members of FSDP1's wrapper if the object may also be of another class.

    Raises:
        Blocked: with the reason.
    """
    name = node.attr.value
    if name in CHANGED - {"module", "forward", "state_dict", "load_state_dict"}:
        reason = MEMBER_OF_SEVERAL_CLASSES(name=name)
        raise Blocked(source, node, reason)


def rewrite_forward(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Rewrite `model.forward(x)`, which works in FSDP1, to `model(x)`.

    Raises:
        Blocked: the code does not call it.
    """
    parent = source.parent(node)
    if not isinstance(parent, cst.Call) or parent.func is not node:
        raise Blocked(source, node, FORWARD_AS_VALUE())
    migration.substitute(source, node, migration.text(source, node.value))
    migration.step(source, node, "Call the model")

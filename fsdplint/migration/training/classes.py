"""References to the FSDP class: isinstance tests, annotations, arguments of functions."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.edits.imports.stand_ins import stand_ins
from fsdplint.migration.blockers import Blocked, Reason
from fsdplint.migration.blockers.constructor import (
    CLASS_AS_ARGUMENT,
    CLASS_RENAMED,
    CLASS_USE,
    PARTIAL_BEFORE_GROUP,
    PARTIAL_OF_SEVERAL,
    PARTIAL_POSITIONAL,
    SUBCLASS,
    WRAPPER_CLS,
)
from fsdplint.migration.constructor.constructor_arguments import read_keywords
from fsdplint.migration.constructor.keywords import is_simple
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.facts import Precision
from fsdplint.migration.names import FSDP, fsdp1_name
from fsdplint.migration.training import module_loops
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import ancestors, annotation_around, function_around
from fsdplint.syntax.layout import statement_of
from fsdplint.syntax.qualified_names import canonical

ASSERTIONS = ("assertIsInstance",)  # of unittest


def rewrite_class_reference(migration: Migration, source: Source, node: cst.CSTNode) -> None:
    """Rewrite `isinstance(x, FSDP)`, also as an assertion of a test, and annotations to FSDPModule.

    Raises:
        Blocked: the class is used in another way.
    """
    if not (_in_isinstance(source, node) or annotation_around(source, node)):
        if rewrite_partial(migration, source, node) or _rewrite_type(migration, source, node):
            return
        if tests_import(source, node):
            if not _rename_test(migration, source, node):
                migration.consumed.add(node)
            return
        if is_truth_of_import(source, node) and _rename_test(migration, source, node):
            return
        raise Blocked(source, node, reason(migration, source, node))
    migration.account_for(source, node)
    if _of_wrap(migration, source, node):
        migration.forget(source, node)  # the rewrite of the statement leaves the annotation out
        return
    if module_loops.rewrite(migration, source, _isinstance_around(source, node)):
        return
    name = migration.need(source, "torch.distributed.fsdp", "FSDPModule", node)
    migration.substitute(source, node, name)
    migration.step(source, node, "Ask for FSDPModule")


def _of_wrap(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    """Whether a node is the annotation in `model: FSDP = FSDP(...)`."""
    annotation = source.parent(node)
    statement = source.parent(annotation) if isinstance(annotation, cst.Annotation) else None
    return (
        isinstance(statement, cst.AnnAssign)
        and isinstance(statement.value, cst.Call)
        and migration.fsdp1(statement.value.func) == FSDP
    )


def tested_model(source: Source, node: cst.CSTNode) -> cst.BaseExpression | None:
    """The model in `isinstance(model, FSDP)` or `type(model) is FSDP`; None for other uses."""
    parent = source.parent(node)
    if isinstance(parent, cst.ComparisonTarget):
        whole = source.parent(parent)
        call = whole.left if isinstance(whole, cst.Comparison) else None
    else:
        call = _isinstance_around(source, node)
    if not isinstance(call, cst.Call) or not call.args:
        return None
    func = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    asks = isinstance(func, cst.Name) and func.value in ("isinstance", "type", *ASSERTIONS)
    return call.args[0].value if asks else None


def _in_isinstance(source: Source, node: cst.CSTNode) -> bool:
    return _isinstance_around(source, node) is not None


def _isinstance_around(source: Source, node: cst.CSTNode) -> cst.Call | None:
    arg = source.parent(node)
    while isinstance(arg, cst.Element | cst.Tuple | cst.BinaryOperation):
        arg = source.parent(arg)
    call = source.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call):
        return None
    if isinstance(call.func, cst.Attribute):
        asserts = call.func.attr.value in ASSERTIONS and is_constant(call.func.value, "self")
        return call if asserts and call.args.index(arg) == 1 else None
    named = isinstance(call.func, cst.Name) and call.func.value in ("isinstance", "issubclass")
    return call if named else None


def tests_import(source: Source, node: cst.CSTNode) -> bool:
    """Whether a node is in `FSDP is None`, a test of a failed import that the migration keeps."""
    whole = source.parent(node)
    return (
        isinstance(whole, cst.Comparison)
        and whole.left is node
        and all(
            isinstance(target.operator, cst.Is | cst.IsNot)
            and is_constant(target.comparator, "None")
            for target in whole.comparisons
        )
    )


def is_truth_of_import(source: Source, node: cst.CSTNode) -> bool:
    """Whether code reads a name as a truth value: `FSDP and ...`, `if FSDP:`, `not FSDP`."""
    parent = source.parent(node)
    if isinstance(parent, cst.UnaryOperation):
        return isinstance(parent.operator, cst.Not)
    if isinstance(parent, cst.BooleanOperation):
        return parent.left is node
    return isinstance(parent, cst.If | cst.IfExp) and parent.test is node


def _rename_test(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    """Ask for the import of FSDPModule, where `FSDP = None` stands for a failed import.

    The stand-in gets the new name, too. Returns whether the name has one.
    """
    if not isinstance(node, cst.Name):
        return False
    items = [one for one in bindings_of(source).imports() if one.local == node.value]
    found = stand_ins(source, items[0]) if len(items) == 1 else None
    if not found:
        return False
    name = migration.need(source, "torch.distributed.fsdp", "FSDPModule", node)
    for assigned in found:
        migration.substitute(source, assigned.targets[0].target, name)
    migration.account_for(source, node)
    migration.substitute(source, node, name)
    migration.step(source, node, "Ask for FSDPModule")
    return True


def _rewrite_type(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    """Rewrite `type(x) is FSDP` to `isinstance(x, FSDPModule)`.

    `fully_shard` creates a subclass for each class. Returns whether it is such a comparison.
    """
    target = source.parent(node)
    whole = source.parent(target) if isinstance(target, cst.ComparisonTarget) else None
    if not isinstance(whole, cst.Comparison) or len(whole.comparisons) != 1:
        return False
    assert isinstance(target, cst.ComparisonTarget)
    left, operator = whole.left, target.operator
    if not isinstance(left, cst.Call) or not isinstance(left.func, cst.Name) or len(left.args) != 1:
        return False
    if left.func.value != "type":
        return False
    if not isinstance(operator, cst.Is | cst.Equal | cst.IsNot | cst.NotEqual):
        return False
    name = migration.need(source, "torch.distributed.fsdp", "FSDPModule", node)
    negated = "not " if isinstance(operator, cst.IsNot | cst.NotEqual) else ""
    model = migration.text(source, left.args[0].value)
    migration.account_for(source, node)
    migration.substitute(source, whole, f"{negated}isinstance({model}, {name})")
    migration.step(source, whole, "Ask for FSDPModule")
    return True


def rewrite_quoted_annotations(migration: Migration, source: Source) -> None:
    """Rewrite the class in quoted annotations to FSDPModule."""
    names = {
        item.local
        for item in bindings_of(source).imports()
        if fsdp1_name(canonical(item.full)) == FSDP
    }
    if not names:
        return
    word = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    for node in nodes(source):
        if not isinstance(node, cst.SimpleString) or not word.search(node.value):
            continue
        if any(isinstance(around, cst.Annotation) for around in ancestors(source, node)):
            name = migration.need(source, "torch.distributed.fsdp", "FSDPModule", node)
            migration.substitute(source, node, word.sub(name, node.value))


def rewrite_partial(migration: Migration, source: Source, node: cst.CSTNode) -> bool:
    """Rewrite `functools.partial(FSDP, ...)` to a partial of `fully_shard`.

    Returns whether the class is an argument of `partial`.

    Raises:
        Blocked: an argument has no counterpart in `fully_shard`.
    """
    arg = source.parent(node)
    call = source.parent(arg) if isinstance(arg, cst.Arg) else None
    if not isinstance(call, cst.Call) or migration.symbol(call.func) != "functools.partial":
        return False
    if call.args[0] is not arg or any(a.keyword is None for a in call.args[1:]):
        raise Blocked(source, call, PARTIAL_POSITIONAL())
    named = {a.keyword.value: a for a in call.args[1:] if a.keyword is not None}
    keywords = read_keywords(migration, source, call, named, [], Precision())
    keywords.prepare(False, True)
    if keywords.policy is not None or keywords.after("model"):
        raise Blocked(
            source,
            call,
            PARTIAL_OF_SEVERAL(),
        )
    mesh = dict(keywords.items).get("mesh", "")
    if mesh and not is_simple(mesh) and not _group_exists(migration, source, call):
        raise Blocked(
            source,
            call,
            PARTIAL_BEFORE_GROUP(),
        )
    if keywords.setup:
        migration.rewrite.insert_before(source, statement_of(source, call), keywords.setup)
    shard = migration.need(source, "torch.distributed.fsdp", "fully_shard", call)
    migration.account_for(source, call)
    migration.put_call(
        source, call, migration.text(source, call.func), [shard, *keywords.arguments(inner=False)]
    )
    migration.step(source, call, "Shard the model with fully_shard")
    return True


def _group_exists(migration: Migration, source: Source, call: cst.Call) -> bool:
    """Whether the same function creates the process group before a call."""
    return any(
        isinstance(node, cst.Call)
        and migration.symbol(node.func) == "torch.distributed.init_process_group"
        and function_around(source, node) is function_around(source, call)
        and source.span(node) < source.span(call)
        for node in nodes(source)
    )


def reason(migration: Migration, source: Source, node: cst.CSTNode) -> Reason:
    """The reason for which a reference to the class has no rewrite."""
    parent = source.parent(node)
    owner = source.parent(parent) if parent is not None else None
    if isinstance(parent, cst.Arg) and isinstance(owner, cst.ClassDef):
        return SUBCLASS()
    if isinstance(parent, cst.Arg) and isinstance(owner, cst.Call):
        called = source.code(owner.func)
        if parent.keyword is not None and parent.keyword.value == "wrapper_cls":
            return WRAPPER_CLS()
        return CLASS_AS_ARGUMENT(function=called)
    if isinstance(parent, cst.Assign):
        return CLASS_RENAMED()
    return CLASS_USE()

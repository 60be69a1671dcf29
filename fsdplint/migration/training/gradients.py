"""Computations with gradients, of which FSDP1 gives the program this rank's part.

If an `all_reduce` sums the squares of the parts, the result does not depend on the sharding, and
`p.grad.to_local()` is equivalent in FSDP2. The same holds for tests of finite values. Elementwise
operations are the same in both; any other computation depends on the way in which FSDP1 shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from fsdplint.interpreter import Program
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.migration.blockers import Blocked, Reason
from fsdplint.migration.blockers.training import GRADIENT_NORM, GRADIENT_PART
from fsdplint.migration.constructor.ignored_values import is_ignored, may_ignore
from fsdplint.migration.context import Migration, is_fsdp1, nodes
from fsdplint.migration.training import gradient_sums
from fsdplint.migration.training.finite_tests import finite_test, is_truth
from fsdplint.migration.training.gradient_norms import NORMS, is_in_norm, is_largest
from fsdplint.migration.training.own_tensors import is_own_tensor
from fsdplint.migration.training.plain_models import is_never_sharded
from fsdplint.migration.training.reduced_sums import SAME, SQUARES, is_two
from fsdplint.migration.training.tensors_of_objects import is_held_by_object
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.enclosing import ancestors, never_runs
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import symbols_in

ELEMENTWISE = {"mul_", "div_", "zero_", "fill_", "add_", "sub_", "clamp_", "neg_", "nan_to_num_"}
IN_PLACE = {"torch.nan_to_num", "torch.nan_to_num_", "torch.clamp_"}  # in place with `out`
KEPT = {"dtype", "device", "is_sparse", "layout"}  # the same for a part and the whole
TITLE = "Add up the squares of this rank's part: `to_local()`"
FINITE = "Test whether this rank's part is finite: `to_local()`"
PART = "Read this rank's part: `to_local()`"
PART_NOTE = "a norm of gradients stays one of this rank's part, which FSDP2 cuts differently"
PART_DETAIL = (
    "For the norm over all ranks call `torch.nn.utils.get_total_norm(...).full_tensor()` on every "
    "rank instead."
)
FINITE_NOTE = (
    "each rank still tests only its own part of the gradients for values that are not finite"
)
FINITE_DETAIL = (
    "FSDP2 shards the gradients differently than FSDP1, so another rank may find a value that is not "
    "finite. Let all ranks decide together with an all_reduce. The program with FSDP1 needed that, too."
)


def rewrite(migration: Migration, source: Source) -> None:
    """Use `to_local()` in sums of squares over the ranks, and in tests of finite values."""
    if ".grad" not in source.text:
        return
    symbols = symbols_in(source)
    whole = may_ignore(migration)
    for node in _gradients(source.tree):
        _rewrite_finite(migration, source, node, symbols, whole)
    if whole:
        return
    files = list(migration.program.sources.values())
    for function in [n for n in nodes(source) if isinstance(n, cst.FunctionDef)]:
        uses = [n for n in _gradients(function) if is_of_fsdp1(migration.program, n.value)]
        sums = [node for node in uses if _is_summed_square(files, source, function, node, symbols)]
        rest = [node for node in uses if node not in sums]
        rest = [node for node in rest if not _harmless(migration, source, node, symbols)]
        if not sums or rest or len(uses) != len(list(_gradients(function))):
            _keep_parts(migration, source, function, symbols)
            continue
        for node in sums:
            text = migration.text(source, node)
            migration.substitute(source, node, f"{text}.to_local()")
            migration.blocks.local_shard_functions.add(node)
        migration.blocks.local_shard_functions.add(function)
        migration.step(source, sums[0], TITLE)


def _keep_parts(
    migration: Migration,
    source: Source,
    function: cst.FunctionDef,
    symbols: dict[cst.CSTNode, str],
) -> None:
    """Keep norms and sums of squares of this rank's part, which FSDP2 cuts in another way.

    Not in a function that also changes gradients: what they are multiplied by would change.
    """
    if any(_is_changed(source, node) for node in _gradients(function)):
        return
    kept = []
    for node in _gradients(function):
        values = migration.values(node.value)
        found = [v for v in values if isinstance(v, ParametersOf) and v.element]
        if not any(is_fsdp1(m) for v in found for m in v.modules):
            continue
        if not is_in_norm(source, node, symbols):
            continue
        if node in migration.blocks.local_shard_functions:
            continue
        if _reason(source, function, node, symbols).blocker is GRADIENT_NORM:
            continue
        if is_gathered(migration, source, node) or is_own_tensor(
            migration, source, node.value, symbols
        ):
            continue
        text = migration.text(source, node)
        part = f"{text}.to_local()"
        if not is_of_fsdp1(migration.program, node.value):
            tensor = migration.need(source, "torch.distributed.tensor", "DTensor", node)
            part = f"({part} if isinstance({text}, {tensor}) else {text})"
        migration.substitute(source, node, part)
        migration.blocks.local_shard_functions.add(node)
        migration.step(source, node, PART)
        migration.note(PART_NOTE, source, node, detail=PART_DETAIL, unsafe=True)
        kept.append(node)
    if kept and all(is_of_fsdp1(migration.program, node.value) for node in kept):
        _keep_unreached(migration, source, function, symbols)


def _keep_unreached(
    migration: Migration,
    source: Source,
    function: cst.FunctionDef,
    symbols: dict[cst.CSTNode, str],
) -> None:
    """Keep norms of another order, which no call asks for, those of this rank's part."""
    for node in _gradients(function):
        if migration.values(node.value) or _harmless(migration, source, node, symbols):
            continue
        if is_in_norm(source, node, symbols) or is_largest(source, node):
            migration.substitute(source, node, f"{migration.text(source, node)}.to_local()")
            migration.blocks.local_shard_functions.add(node)


def _rewrite_finite(
    migration: Migration,
    source: Source,
    node: cst.Attribute,
    symbols: dict[cst.CSTNode, str],
    whole: bool,
) -> None:
    """Keep a test of finite values on this rank's part.

    A test that is read as a truth value stays as it is: for a DTensor it tests this rank's part, and
    the code also works for models that are not sharded.
    """
    test = finite_test(source, node, symbols)
    values = migration.values(node.value)
    found = [v for v in values if isinstance(v, ParametersOf) and v.element]
    if test is None or not any(is_fsdp1(m) for v in found for m in v.modules):
        return
    if not is_truth(source, test):
        if not is_of_fsdp1(migration.program, node.value) or whole:
            return
        migration.substitute(source, node, f"{migration.text(source, node)}.to_local()")
        migration.step(source, node, FINITE)
    migration.blocks.local_shard_functions.add(test)
    migration.note(FINITE_NOTE, source, test, detail=FINITE_DETAIL)


def check(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Block on a norm or sum that the program computes from each rank's part."""
    for source in migration.program.sources.values():
        if ".grad" not in source.text:
            continue
        symbols = symbols_in(source)
        seen: set[cst.CSTNode] = set()
        for function in nodes(source):
            if (
                not isinstance(function, cst.FunctionDef)
                or function in migration.blocks.local_shard_functions
            ):
                continue
            names = {n.attr.value for n in descend(function) if isinstance(n, cst.Attribute)}
            if not names & {"norm", "all_reduce", "vector_norm"}:
                continue
            if names & {"clip_grad_norm_"} and "all_reduce" not in names:
                continue
            for node in _gradients(function):
                if node in seen or node in migration.blocks.local_shard_functions:
                    continue
                if _harmless(migration, source, node, symbols):
                    continue
                if is_gathered(migration, source, node):
                    continue
                if is_own_tensor(migration, source, node.value, symbols):
                    continue
                if is_held_by_object(migration, node.value):
                    continue
                if is_never_sharded(migration, source, function, node.value):
                    continue
                if is_ignored(migration, source, node.value):
                    continue
                seen.add(node)
                if _called_by_nobody(migration, source, function):
                    migration.blocking_if_called[function] = source
                    continue
                reason = _reason(source, function, node, symbols)
                migration.blockers.append(Blocked(source, node, reason))


def is_gathered(migration: Migration, source: Source, node: cst.Attribute) -> bool:
    """Whether a gradient is read where `summon_full_params(with_grads=True)` has gathered it."""
    return any(
        isinstance(item.item, cst.Call)
        and any(
            arg.keyword is not None
            and arg.keyword.value == "with_grads"
            and is_constant(arg.value, "True")
            for arg in item.item.args
        )
        for block in migration.blocks.whole_parameters.intersection(ancestors(source, node))
        if isinstance(block, cst.With)
        for item in block.items
    )


def _reason(
    source: Source, function: cst.FunctionDef, node: cst.Attribute, symbols: dict[cst.CSTNode, str]
) -> Reason:
    top, norm, squared = _chain(source, node, symbols)
    text = " ".join(source.code(_expression_around(source, node)).split())
    if norm and not squared and top is not None:
        if gradient_sums.is_all_reduced(source, top):
            return GRADIENT_NORM(text=text)
    return GRADIENT_PART(text=text)


def _expression_around(source: Source, node: cst.CSTNode) -> cst.CSTNode:
    """The expression with the methods that are called on a gradient, or the function that gets it."""
    given = False
    while True:
        parent = source.parent(node)
        if isinstance(parent, cst.Arg) and not given:
            given = True
            node = parent
        elif isinstance(parent, cst.Attribute) or (
            isinstance(parent, cst.Call) and (parent.func is node or isinstance(node, cst.Arg))
        ):
            node = parent
        else:
            return node


def _called_by_nobody(migration: Migration, source: Source, function: cst.FunctionDef) -> bool:
    """Whether no code that may run mentions a function of the top level, other than its body."""
    if function not in source.tree.body:
        return False
    own = set(descend(function))
    return not any(
        isinstance(node, cst.Name)
        and node.value == function.name.value
        and node not in own
        and not never_runs(other, node)
        for other in migration.program.sources.values()
        for node in other.descend(other.tree)
    )


def sums_gradients(program: Program, source: Source) -> bool:
    """Whether a file may sum gradients of wrapped models, and so belongs to the migration."""
    if ".grad" not in source.text or "all_reduce" not in source.text:
        return False
    return any(is_of_fsdp1(program, node.value) for node in _gradients(source.tree))


def _gradients(tree: cst.CSTNode) -> Iterator[cst.Attribute]:
    for node in descend(tree):
        if isinstance(node, cst.Attribute) and node.attr.value == "grad":
            yield node


def is_of_fsdp1(program: Program, node: cst.BaseExpression) -> bool:
    """Whether a node is a parameter of wrapped models only."""
    values = program.values(node)
    return bool(values) and all(
        isinstance(v, ParametersOf) and v.element and v.modules and all(map(is_fsdp1, v.modules))
        for v in values
    )


def _harmless(
    migration: Migration,
    source: Source,
    node: cst.Attribute,
    symbols: dict[cst.CSTNode, str],
) -> bool:
    """Whether a gradient is only compared with None, set to None, or changed elementwise."""
    parent = source.parent(node)
    if isinstance(parent, cst.Comparison | cst.Del):
        return True
    if isinstance(parent, cst.AssignTarget):
        statement = source.parent(parent)
        return isinstance(statement, cst.Assign) and is_constant(statement.value, "None")
    if isinstance(parent, cst.AugAssign) and parent.target is node:
        return isinstance(parent.operator, cst.MultiplyAssign | cst.DivideAssign)
    if isinstance(parent, cst.Arg):
        call = source.parent(parent)
        if isinstance(call, cst.Call) and symbols.get(call.func) in IN_PLACE:
            out = next((a.value for a in call.args if a.keyword and a.keyword.value == "out"), None)
            text = source.code(node)
            return symbols[call.func].endswith("_") or (
                out is not None and source.code(out).removesuffix(".data") == text
            )
        return finite_test(source, node, symbols) in migration.blocks.local_shard_functions
    if finite_test(source, node, symbols) in migration.blocks.local_shard_functions:
        return True
    if isinstance(parent, cst.Attribute) and parent.attr.value == "data":
        parent = source.parent(parent)
    return isinstance(parent, cst.Attribute) and parent.attr.value in ELEMENTWISE | KEPT


def _is_changed(source: Source, node: cst.Attribute) -> bool:
    """Whether a statement changes the values of a gradient."""
    parent = source.parent(node)
    while isinstance(parent, cst.Attribute) and parent.attr.value == "data":
        node, parent = parent, source.parent(parent)
    if isinstance(parent, cst.Attribute):
        return parent.attr.value in ELEMENTWISE - {"zero_"} | {"copy_"}
    return isinstance(parent, cst.AugAssign | cst.AssignTarget)


def _is_summed_square(
    files: Sequence[Source],
    source: Source,
    function: cst.FunctionDef,
    node: cst.Attribute,
    symbols: dict[cst.CSTNode, str],
) -> bool:
    """Whether the squares of a gradient are added to a number that `all_reduce` sums."""
    top, norm, squared = _chain(source, node, symbols)
    if top is None or not (norm and squared):
        return False
    return gradient_sums.is_added_up(files, source, function, top)


def _chain(
    source: Source, node: cst.Attribute, symbols: dict[cst.CSTNode, str]
) -> tuple[cst.CSTNode | None, bool, bool]:
    """The outermost expression of a gradient, whether it is a norm or a sum, and whether it is squared.

    The expression is None if other operations are applied.
    """
    current: cst.CSTNode = node
    norm = squared = False
    while True:
        parent = source.parent(current)
        if isinstance(parent, cst.Attribute) and parent.value is current:
            name, call = parent.attr.value, source.parent(parent)
            if not isinstance(call, cst.Call) or call.func is not parent:
                if name != "data":
                    return None, norm, squared
                current = parent
                continue
            if name == "norm" and not norm and not squared and _has_order_two(call, 0):
                norm = True
            elif name in SQUARES and not squared and (name == "square" or _has_order_two(call, 0)):
                squared = True
            elif name == "sum" and squared and not norm and not call.args:
                return call, True, True
            elif name not in SAME and not (name == "item" and norm):
                return None, norm, squared
            current = call
        elif isinstance(parent, cst.Arg):
            call = source.parent(parent)
            if not isinstance(call, cst.Call) or norm or squared or call.args[0] is not parent:
                return None, norm, squared
            if symbols.get(call.func, "") not in NORMS or not _has_order_two(call, 1):
                return None, norm, squared
            norm, current = True, call
        elif isinstance(parent, cst.BinaryOperation) and isinstance(parent.operator, cst.Power):
            if parent.left is not current or not is_two(parent.right) or squared:
                return None, norm, squared
            squared, current = True, parent
        else:
            return current, norm, squared


def _has_order_two(call: cst.Call, position: int) -> bool:
    """Whether the order of a norm, or the exponent, is 2 (for norms, by default)."""
    given = arguments(call, ["input", "p"][1 - position :])[0]
    order = given.get("p") or given.get("ord") or given.get("exponent")
    if order is not None:
        return is_two(order.value)
    name = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    return name not in SQUARES and "dim" not in given

"""Simple statements and definitions."""

from __future__ import annotations

from functools import partial

import libcst as cst

from fsdplint.interpreter import (
    gradient_writes,
    lazy,
    loaded_numbers,
    losses,
    mode_code,
    possible_lists,
    rank_means,
)
from fsdplint.interpreter.assignment import assign
from fsdplint.interpreter.constructs.branches import choice_of_callee, execute_choice
from fsdplint.interpreter.constructs.operators import (
    arithmetic,
    is_distinct_result,
    note_position,
)
from fsdplint.interpreter.copies_of_shards import note_copy_replaced
from fsdplint.interpreter.decided_values import assigned_value
from fsdplint.interpreter.deferral import may_be_deferred
from fsdplint.interpreter.dispatch import executes
from fsdplint.interpreter.error_handling import note_failure
from fsdplint.interpreter.frames import Call, Frame
from fsdplint.interpreter.functions import (
    apply_class_decorators,
    apply_decorators,
    call_function,
    make_function,
)
from fsdplint.interpreter.idle_turns import is_idle
from fsdplint.interpreter.imports import (
    absolute_name,
    import_from,
    import_module,
    note_import,
    public_names,
)
from fsdplint.interpreter.iteration import concatenate, is_list_of_parameters
from fsdplint.interpreter.long_run import note_count
from fsdplint.interpreter.models.gradient_scaling import note_scaling
from fsdplint.interpreter.models.mixed_operations import note_written
from fsdplint.interpreter.one_rank_dicts import add_entries
from fsdplint.interpreter.optimizers import note_group_change
from fsdplint.interpreter.own_dicts import as_dict
from fsdplint.interpreter.parameter_marks import unmark_parameters
from fsdplint.interpreter.records import record_base
from fsdplint.interpreter.removals import note_removal, remove_item
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.signals import EXITS, Signal, exit_fails, is_exit, raises
from fsdplint.interpreter.torch_values import (
    ParametersOf,
    PossibleLists,
    TensorValue,
    is_new_parameter,
)
from fsdplint.interpreter.turn_tests import number_of_operation
from fsdplint.interpreter.values import (
    Class,
    Const,
    Dict,
    Function,
    Instance,
    LazyClass,
    ModuleValue,
    RankLocal,
    Scope,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.interpreter.values import Sequence as SequenceValue
from fsdplint.source.source import NodeSite
from fsdplint.trace import Fsdp1Used

FSDP1 = "torch.distributed.fsdp.FullyShardedDataParallel"


@executes(cst.SimpleStatementLine)
def execute_simple_statement_line(run: Run, node: cst.SimpleStatementLine) -> Signal | None:
    run.lines += not is_idle(node)
    return run.execute_block(node.body)


@executes(cst.Expr)
def execute_expr(run: Run, node: cst.Expr) -> Signal | None:
    choice = choice_of_callee(node.value)
    if choice is not None:
        return execute_choice(run, node.value, choice)
    run.eval(node.value)
    exits = isinstance(node.value, cst.Call) and _ends_program(run, node.value)
    return Signal("exit", fails=exit_fails(node.value)) if exits else None


def _ends_program(run: Run, call: cst.Call) -> bool:
    """Whether a call is one of `sys.exit` or the like, by whatever name."""
    function = run.settle(run.evaluations.get(call.func, Unknown()))
    return is_exit(call) or (isinstance(function, Symbol) and function.name in EXITS)


@executes(cst.Assign)
def execute_assign(run: Run, node: cst.Assign) -> None:
    value = run.eval_choice(node.value)
    if isinstance(value, Const | Unknown) and run.loop_depth and _counts_up(node):
        local = _counting_data(run)
        if isinstance(value, Const):
            value = Unknown(varying=True)  # another number in each turn, as with `step += 1`
        value.rank_local = value.rank_local or local
    for target in node.targets:
        note_copy_replaced(run, target.target, node.value, value)
        assign(run, target.target, value)


def _counts_up(node: cst.Assign) -> bool:
    """Whether a statement is `step = step + 1`."""
    added, target = node.value, node.targets[0].target
    if not isinstance(added, cst.BinaryOperation) or len(node.targets) != 1:
        return False
    return isinstance(target, cst.Name | cst.Attribute) and added.left.deep_equals(target)


@executes(cst.AnnAssign)
def execute_ann_assign(run: Run, node: cst.AnnAssign) -> None:
    if node.value is not None:
        assign(run, node.target, run.eval_choice(node.value))


def _counts(left: Value, right: Value) -> bool:
    """Whether `left += right` adds a constant number."""
    added = isinstance(right, Const) and type(right.value) in (int, float)
    return added and isinstance(left, Const | Unknown)


def _counting_data(run: Run) -> RankLocal | None:
    """What makes a number different on each rank that a loop counts: each rank decides by its own
    data whether it counts.

    Ranks that have left all loops count no further: those that go on have the same number.
    """
    only_loop = run.loop_depth == 1 and run.in_turn
    left = {"program", "loop", "function"} if only_loop else {"program"}
    sources = [
        entry.guard.own_data
        for entry in run.guards
        if entry.guard.own_data is not None and entry.until not in left
    ]
    source = sources[-1] if sources and run.loop_depth else None
    return RankLocal(source, immutable=True) if isinstance(source, NodeSite) else None


@executes(cst.AugAssign)
def execute_aug_assign(run: Run, node: cst.AugAssign) -> None:
    left, right = run.eval(node.target), run.eval(node.value)
    note_group_change(run, left)
    mode_code.note_update(run, node.target, left)
    if isinstance(left, SequenceValue):
        right = lazy.consume(run, right)
        left.every = False
        run.windows.pop(left, None)
        if isinstance(right, SequenceValue):
            left.extend(right.items)
            left.open = left.open or right.open
        else:
            left.open = True
            left.length = None
        return
    if isinstance(left, Dict) and isinstance(right, Dict):
        add_entries(run, left, right)
        return
    if isinstance(left, PossibleLists):
        possible_lists.add(run, left, "extend", Call(node, [right]))
        return
    adds = isinstance(node.operator, cst.AddAssign | cst.BitOrAssign)
    if adds and is_list_of_parameters(left):
        assign(run, node.target, concatenate(run, left, right))
        return
    if isinstance(node.operator, cst.AddAssign) and run.loop_depth and run.replaced_numbers:
        loaded_numbers.note_begin(run, left)
    scales: cst.BaseBinaryOp | None = None
    if isinstance(node.operator, cst.DivideAssign):
        scales = cst.Divide()
    elif isinstance(node.operator, cst.MultiplyAssign):
        losses.note_product(run, left, right)
        scales = cst.Multiply() if isinstance(left, TensorValue) else None
    keeps = gradient_writes.keeps_zero(node.operator)
    if not keeps and gradient_writes.is_gradient(run.settle(left)):
        gradient_writes.note_made(run)
    if isinstance(node.operator, cst.DivideAssign | cst.MultiplyAssign):
        by_division = isinstance(node.operator, cst.DivideAssign)
        note_scaling(run, left, right, node.target, by_division)
    if isinstance(left, ParametersOf) and left.element:
        note_written(run, node.target, [left], [right])
    result = arithmetic(run, left, right, scales)
    if isinstance(node.operator, cst.AddAssign):
        rank_means.note_added(run, left, right, result)
    if isinstance(result, Unknown) and _counts(left, right):
        result.rank_local = result.rank_local or _counting_data(run)
    note_position(run, left, node.operator, right, result)
    if isinstance(result, Unknown) and is_distinct_result(left, node.operator, right):
        result.distinct = True
    if run.loop_depth and isinstance(result, Unknown) and _counts(left, right):
        result.varying = True  # another number in each turn
        note_count(result, node.operator, right)
    if isinstance(left, Unknown | TensorValue) and left.on_cpu:
        if result is not right and isinstance(result, Unknown | TensorValue):
            result.on_cpu = True  # the operation is in place
    if isinstance(left, Unknown | TensorValue) and left.few_elements:
        if result is not right and isinstance(result, Unknown | TensorValue):
            result.few_elements = True  # an operation in place keeps the size
    if isinstance(result, Unknown) and result.term is None and isinstance(left, Unknown):
        result.term = number_of_operation(left, node.operator, right)
    if run.loop_depth and isinstance(result, Unknown):
        result.varying = True  # each turn of the loop gives it another value
    made = run.gradients_made_at
    assign(run, node.target, result)
    if keeps:
        run.gradients_made_at = made


@executes(cst.Return)
def execute_return(run: Run, node: cst.Return) -> Signal:
    value = run.eval_choice(node.value) if node.value is not None else Const(None)
    return Signal("return", value)


@executes(cst.Raise)
def execute_raise(run: Run, node: cst.Raise) -> Signal:
    if node.exc is not None:
        run.eval(node.exc)
    if not run.frames[-1].handlers:
        run.note_leaving()
    kind = raises(node)
    if kind == "raise":
        note_failure(run)
    return Signal(kind, fails=kind == "raise" or exit_fails(node.exc))


@executes(cst.Break)
def execute_break(run: Run, node: cst.Break) -> Signal:
    return Signal("break")


@executes(cst.Continue)
def execute_continue(run: Run, node: cst.Continue) -> Signal:
    return Signal("continue")


@executes(cst.Del)
def execute_del(run: Run, node: cst.Del) -> None:
    _delete(run, node.target)


def _delete(run: Run, target: cst.BaseExpression) -> None:
    if isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            _delete(run, element.value)
    elif isinstance(target, cst.Name):
        run.scope.names.pop(target.value, None)
    elif isinstance(target, cst.Subscript):
        container = as_dict(run.settle(run.eval(target.value)))
        run.note_change(container)
        note_group_change(run, container)
        index = _only_index(run, target)
        remove_item(container, index)
        note_removal(run, container, index)
    elif isinstance(target, cst.Attribute):
        run.note_change()
        owner = run.settle(run.eval(target.value))
        unmark_parameters(run, owner, target.attr.value)
        if isinstance(owner, Instance | ModuleValue):
            held = owner.attributes.get(target.attr.value)
            if isinstance(owner, Instance) or is_new_parameter(held):
                owner.attributes.pop(target.attr.value, None)


def _only_index(run: Run, target: cst.Subscript) -> Value:
    """The index of the only element that a subscript names; unknown for slices."""
    index = target.slice[0].slice if len(target.slice) == 1 else None
    return run.settle(run.eval(index.value)) if isinstance(index, cst.Index) else Unknown()


@executes(cst.Global)
def execute_global(run: Run, node: cst.Global) -> None:
    for item in node.names:
        run.scope.aliases[item.name.value] = run.scope.module


@executes(cst.Nonlocal)
def execute_nonlocal(run: Run, node: cst.Nonlocal) -> None:
    for item in node.names:
        owner = run.scope.owner(item.name.value)
        if owner is not None:
            run.scope.aliases[item.name.value] = owner


@executes(cst.Import)
def execute_import(run: Run, node: cst.Import) -> None:
    for alias in node.names:
        full = alias.evaluated_name
        if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
            run.scope.assign(alias.asname.name.value, import_module(run, full))
        else:
            head = full.partition(".")[0]
            run.scope.assign(head, import_module(run, head))
            if head != full:
                import_module(run, full)  # its statements may fill a registry
        note_import(run, node, full, ())


@executes(cst.ImportFrom)
def execute_import_from(run: Run, node: cst.ImportFrom) -> None:
    base = absolute_name(node)
    if isinstance(node.names, cst.ImportStar):
        module = import_module(run, base)
        for name, value in public_names(run, module):
            run.scope.assign(name, value)
        note_import(run, node, base, ("*",))
        return
    for alias in node.names:
        local = alias.evaluated_alias or alias.evaluated_name
        value = import_from(run, base, alias.evaluated_name)
        run.scope.assign(local, assigned_value(run, value))
    note_import(run, node, base, tuple(alias.evaluated_name for alias in node.names))


@executes(cst.FunctionDef)
def execute_function_def(run: Run, node: cst.FunctionDef) -> None:
    run.scope.assign(node.name.value, apply_decorators(run, make_function(run, node), node))


@executes(cst.ClassDef)
def execute_class_def(run: Run, node: cst.ClassDef) -> None:
    scope = run.scope
    if scope.kind == "module" and may_be_deferred(run.project, run.source, node):
        scope.assign(node.name.value, LazyClass(partial(_define_later, scope, node)))
    else:
        scope.assign(node.name.value, _define_class(run, node))


def _define_later(scope: Scope, node: cst.ClassDef, run: Run) -> Value:
    with run.at_top_of(scope):
        return _define_class(run, node)


def _define_class(run: Run, node: cst.ClassDef) -> Value:
    bases = [run.eval(arg.value) for arg in node.bases if not arg.star]
    for arg, base in zip(node.bases, bases, strict=False):
        if isinstance(base, Symbol) and base.name == FSDP1:
            run.emit(Fsdp1Used, arg.value, api="subclass")
    klass = Class(node.name.value, node, run.scope, run.site(node), bases)
    klass.maker = record_base(klass)
    scope = Scope(run.source, run.scope, "class", run.scope.module_name, klass.attributes)
    frame = Frame(None, scope, owner=klass, handlers=run.frames[-1].handlers)
    run.frames.append(frame)
    try:
        run.execute_block(node.body.body)
    finally:
        run.frames.pop()
    if "__init_subclass__" in klass.attributes:
        run.collectors.add(klass.name)
        run.imports_searched = 0
    _init_subclass(run, klass, node)
    return apply_class_decorators(run, klass, node)


def _init_subclass(run: Run, klass: Class, node: cst.ClassDef) -> None:
    """Call `__init_subclass__` of the base classes, which may register or configure the class."""
    for base in klass.mro()[1:]:
        hook = base.attributes.get("__init_subclass__")
        if isinstance(hook, Function):
            named = {one.keyword.value: run.eval(one.value) for one in node.keywords if one.keyword}
            named.pop("metaclass", None)
            call_function(run, hook, klass, [], named, node)
            return

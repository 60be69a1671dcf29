"""The truth of a test: true, false, different by rank, decided per configuration, or varying."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

import libcst as cst

from fsdplint.interpreter import rank_elements
from fsdplint.interpreter.argument_values import outcome_by_default, with_values
from fsdplint.interpreter.comparisons import name_origin
from fsdplint.interpreter.decided_values import deciding
from fsdplint.interpreter.mode_code import module_of_mode
from fsdplint.interpreter.models import tensors
from fsdplint.interpreter.models.registry import find_method
from fsdplint.interpreter.module_counts import has_some
from fsdplint.interpreter.own_lengths import own_length
from fsdplint.interpreter.parameter_filters import attributes_asked_for, tests_tensor
from fsdplint.interpreter.rank_local import local_of, own_truth
from fsdplint.interpreter.rank_tests import is_zero, test_choice
from fsdplint.interpreter.ranks import assumed_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    HeldAtTimes,
    LoaderValue,
    ModulesOf,
    ParametersOf,
    PartlyHeld,
    RankTest,
    RankValue,
    ShardTensor,
    StateValue,
    TensorValue,
)
from fsdplint.interpreter.turn_tests import boolean_predicate, predicate_of
from fsdplint.interpreter.values import (
    Condition,
    Const,
    Dict,
    LibraryObject,
    Method,
    ModuleValue,
    RankLocal,
    Sequence,
    Unknown,
    Value,
)
from fsdplint.source.positions import code_children
from fsdplint.trace import Guard, GuardKind, Ranks
from fsdplint.trace.predicates import ALWAYS, NEVER, Predicate, negated
from fsdplint.trace.predicates import Truth as HoldsHere


class Truth(Enum):
    TRUE = 1
    FALSE = 0
    RANK = 2
    VARYING = 3


@dataclass
class Verdict:
    """The result of a test.

    Attributes:
        outcome: the truth.
        guards: the decisions that it depends on, with their keys.
        rank_test: the ranks on which it holds, if they differ.
        local: set if each rank tests its own data.
        decided_by: the keys of earlier decisions in functions whose constant results it tests.
        predicate: what the test says; None if that is not known.
        mode_of: the module that it asks for its mode, which is taken for that of training.
        diverges_where: what has to hold, too, for the ranks to differ; None if it is not known.
    """

    outcome: Truth
    guards: list[tuple[Guard, str]] = field(default_factory=list)
    rank_test: RankTest | None = None
    local: RankLocal | None = None
    decided_by: tuple[str, ...] = ()
    predicate: Predicate | None = None
    mode_of: ModuleValue | None = None
    diverges_where: Predicate | None = None

    def negate(self) -> Verdict:
        outcome = {Truth.TRUE: Truth.FALSE, Truth.FALSE: Truth.TRUE}.get(self.outcome, self.outcome)
        test = self.rank_test
        if test is not None:
            test = test.negate()
        opposite = negated(self.predicate)
        return replace(self, outcome=outcome, rank_test=test, predicate=opposite)

    @property
    def runs_both_sides(self) -> bool:
        """Whether both sides of the branch run, on different ranks or in different turns."""
        return self.local is not None or self.outcome in {Truth.RANK, Truth.VARYING}

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all decisions on which the outcome depends."""
        if not self.guards:
            return self.decided_by
        return (*self.decided_by, *[key for _, key in self.guards])


_DISPLAYS = (Sequence, Dict)
_WITH_FLAGS = (LibraryObject, ParametersOf, ShardTensor, StateValue)
TRUE = Verdict(Truth.TRUE)
FALSE = Verdict(Truth.FALSE)


def truth(run: Run, node: cst.BaseExpression, prefer: bool = True) -> Verdict:
    """Evaluate a test. `prefer`: the outcome with which the program continues."""
    if isinstance(node, cst.BooleanOperation):
        return _boolean(run, node, prefer)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        return truth(run, node.expression, not prefer).negate()
    return truth_of(run, run.eval_choice(node), node, prefer)


def _boolean(run: Run, node: cst.BooleanOperation, prefer: bool) -> Verdict:
    is_and = isinstance(node.operator, cst.And)
    left = truth(run, node.left, prefer)
    decisive = Truth.FALSE if is_and else Truth.TRUE
    if left.outcome is decisive:
        if run.decisions.leaving and left.guards and _is_plain_rank_test(run, node.right):
            run.decisions.relevant.update(left.keys)  # see below
        return left
    if left.outcome is Truth.RANK and left.rank_test is not None:
        test = left.rank_test if is_and else left.rank_test.negate()
        with run.under_guards([(rank_guard(run, node.left, test, True), "")]):
            right = truth(run, node.right, prefer)
    else:
        with deciding(run, left.keys):
            right = truth(run, node.right, prefer)
    guards = left.guards + right.guards
    decided_by = left.decided_by + right.decided_by
    if right.outcome is decisive:
        if left.outcome is Truth.RANK and run.decisions.leaving:
            # With the other outcome, some of the ranks would leave.
            run.decisions.relevant.update(key for _, key in right.guards)
        # the left operand does not matter, unless it was a decision
        return Verdict(decisive, right.guards, decided_by=decided_by)
    # If ranks diverge here, the varying operand did not short-circuit, so the rank test decides.
    if left.outcome is Truth.RANK:
        return Verdict(Truth.RANK, guards, left.rank_test, diverges_where=left.diverges_where)
    if left.outcome is Truth.VARYING:
        if right.outcome is Truth.RANK:
            where = left.predicate if is_and else negated(left.predicate)
            return Verdict(Truth.RANK, guards, right.rank_test, diverges_where=where)
        local = left.local or right.local
        predicate = boolean_predicate(is_and, left.predicate, _of_operand(right))
        return Verdict(Truth.VARYING, guards, local=local, predicate=predicate)
    predicate = right.predicate if right.outcome is Truth.VARYING else None
    return Verdict(right.outcome, guards, right.rank_test, right.local, decided_by, predicate)


def _is_plain_rank_test(run: Run, node: cst.BaseExpression) -> bool:
    """Whether an operand that is not evaluated tests the rank; one with calls is not looked at."""
    nodes: list[cst.CSTNode] = [node]
    for one in nodes:
        if isinstance(one, cst.Call):
            return False
        nodes += code_children(one)
    return isinstance(run.eval(node), RankTest | RankValue)


def _of_operand(verdict: Verdict) -> Predicate | None:
    """What the second operand of `and` or `or` says, if it does not decide the outcome alone."""
    decided = verdict.outcome in {Truth.TRUE, Truth.FALSE}
    return (ALWAYS if verdict.outcome is Truth.TRUE else NEVER) if decided else verdict.predicate


def truth_of(run: Run, value: Value, node: cst.BaseExpression, prefer: bool) -> Verdict:
    """The truth of a value that a test at a node has."""
    verdict = _truth_of(run, value, node, prefer)
    if verdict.outcome is Truth.VARYING:
        verdict.predicate = predicate_of(value)
    return verdict


def _truth_of(run: Run, value: Value, node: cst.BaseExpression, prefer: bool) -> Verdict:
    value = assumed_rank(run, node, value) or value
    if isinstance(value, Const):
        outcome = Truth.TRUE if value.value else Truth.FALSE
        return Verdict(outcome, decided_by=value.decided_by)
    if isinstance(value, RankTest):
        return Verdict(Truth.RANK, [], value)
    if isinstance(value, RankValue):
        return Verdict(Truth.RANK, [], is_zero(value).negate())
    if isinstance(value, Condition) and tests_tensor(run, node):
        return Verdict(Truth.VARYING)  # differs from tensor to tensor
    if isinstance(value, Condition):
        return decide(run, value, node, prefer)
    if isinstance(value, StateValue) and value.on_one_rank and not value.tensor:
        return Verdict(Truth.RANK, [], RankTest(Ranks.ONE, Ranks.OTHERS, number=0))  # else empty
    own = own_length(value) if isinstance(value, Sequence) else None
    if own is not None:
        return Verdict(Truth.VARYING, local=own)
    if isinstance(value, Sequence) and value.kind == "iter":
        return TRUE  # also without elements
    side = rank_elements.holder_of_all(value) if isinstance(value, Sequence) else None
    if side is not None:
        return Verdict(Truth.RANK, [], side.as_test())
    if isinstance(value, _DISPLAYS):
        if value.items or not value.open:
            return TRUE if value.items else FALSE
        return decide(run, condition(run, value, node), node, prefer)
    if isinstance(value, ModulesOf):
        known = has_some(run, value)
        if known is None:
            return decide(run, condition(run, value, node), node, prefer)
        return TRUE if known else FALSE
    if isinstance(value, TensorValue):
        tensors.read_number(run, value, "bool", node)
        return Verdict(Truth.VARYING, local=local_of(value))
    chosen = test_choice(value, _is_true)
    if chosen is not None:
        return Verdict(Truth.RANK, [], chosen)
    if isinstance(value, HeldAtTimes) and value.test is not None:
        return _truth_of(run, value.test, node, prefer)
    if isinstance(value, HeldAtTimes):
        return Verdict(Truth.VARYING, local=local_of(value))
    if isinstance(value, PartlyHeld) and value.held is not None:
        return _truth_of(run, value.held, node, prefer)
    if isinstance(value, Unknown):
        name_origin(run, value)
        if value.refined is not None or value.at_least > 0:
            return TRUE
        if value.own_number is not None:
            return Verdict(Truth.VARYING, local=value.own_number)
        if local_of(value) is not None:
            return Verdict(Truth.VARYING, local=own_truth(value))
        if value.differs or (not value.origin and run.loop_depth):
            return Verdict(Truth.VARYING)
        return decide(run, condition(run, value, node), node, prefer)
    if isinstance(value, LibraryObject):
        return Verdict(Truth.TRUE, decided_by=value.decided_by)
    if isinstance(value, Method) and _may_be_false(value):
        return decide(run, condition(run, value, node), node, prefer)
    module = module_of_mode(run, value)
    return TRUE if module is None else Verdict(Truth.TRUE, mode_of=module)


def _may_be_false(attribute: Method) -> bool:
    """Whether an attribute without a model holds a value that a program tests, and no method.

    A test of `requires_grad` chooses among parameters: see `parameter_filters`.
    """
    owner, name = attribute.receiver, attribute.name
    return (
        isinstance(owner, _WITH_FLAGS)
        and name not in ("requires_grad", "grad")
        and find_method(owner, name) is None
    )


def _is_true(value: Value) -> bool | None:
    if isinstance(value, Sequence) and not value.open:
        return bool(value.items)
    if isinstance(value, LoaderValue):
        return True
    return bool(value.value) if isinstance(value, Const) else None


def condition(run: Run, value: Value, node: cst.BaseExpression) -> Condition:
    """The condition that a value is true."""
    origin = value.origin if isinstance(value, Unknown) else ""
    text = run.text(node)
    predicate = predicate_of(value)
    return Condition(
        origin or text, text, subject=origin or text, relation="truth", predicate=predicate
    )


def decide(run: Run, value: Condition, node: cst.BaseExpression, prefer: bool) -> Verdict:
    with_fsdp2 = None if value.with_fsdp2 is None else value.with_fsdp2 != value.negated
    prefer = prefer if with_fsdp2 is None else with_fsdp2
    usual = outcome_by_default(run, value)
    if usual is not None:
        run.decisions.by_default[value.key] = usual
    holds = run.decisions.decide(with_values(run, value), prefer, node, run.keys_around())
    guard = Guard(
        GuardKind.CONFIG,
        value.text,
        holds != value.negated,
        run.site(node),
        of_tensor=tests_tensor(run, node),
        asks_for=attributes_asked_for(run, node),
        predicate=value.predicate if holds != value.negated else negated(value.predicate),
        before_fsdp2=with_fsdp2 is not None and holds != with_fsdp2,
    )
    return Verdict(Truth.TRUE if holds else Truth.FALSE, [(guard, value.key)])


def placed(run: Run, test: RankTest, node: cst.BaseExpression) -> RankTest:
    """A test of the rank with the place where it chooses between two values."""
    return test if test.created_at is not None else replace(test, created_at=run.site(node))


def rank_guard(
    run: Run,
    node: cst.BaseExpression,
    test: RankTest,
    holds: bool,
    diverges_where: Predicate | None = None,
) -> Guard:
    ranks = test.true_on if holds else test.false_on
    site = run.site(node)
    return Guard(
        GuardKind.RANK,
        run.text(node),
        holds,
        site,
        ranks,
        each_node=test.each_node,
        one_of_node=test.each_node and holds is test.one_is,
        rank=test.number,
        in_turn=test.in_turn,
        loop=test.loop,
        diverges_where=diverges_where,
    )


def varying_guard(
    run: Run,
    node: cst.BaseExpression,
    holds: bool,
    local: RankLocal | None = None,
    predicate: Predicate | None = None,
) -> Guard:
    """The guard of one side of a test; predicate: what the test says, None if it is not known."""
    if predicate is None:
        predicate = HoldsHere()
    elif not holds:
        predicate = negated(predicate)
    own_data = local.source if local is not None else None
    if local is not None and local.position:
        run.tests_of_position.add(run.site(node))
    if own_data in run.names_of_processes:
        own_data = None  # a test for a fork, or of a name: it may say the same on all ranks
    return Guard(
        GuardKind.VARYING,
        run.text(node),
        holds,
        run.site(node),
        own_data=own_data,
        by_clock=own_data in run.clocks,
        by_rank=local is not None and local.position,
        of_tensor=tests_tensor(run, node),
        asks_for=attributes_asked_for(run, node),
        predicate=predicate,
    )

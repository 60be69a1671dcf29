"""Use the state dicts of torch.distributed.checkpoint.state_dict: gathered to save, sharded to
load."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.diagnostics.finding import Finding, Safety
from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.guarded_statements import (
    GuardedStatement,
    guarded_statement,
    liftable,
    may_overtake,
)
from fsdplint.fixes.optimizer_model import model_of, trace_of
from fsdplint.fixes.rank_guard import guardable, on_rank0
from fsdplint.fixes.syntax import (
    argument,
    call_at,
    call_in_place,
    call_lines,
    free_name,
    is_within,
    receiver,
    uses,
)
from fsdplint.interpreter import Program
from fsdplint.source.source import Source
from fsdplint.syntax import layout
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import function_around
from fsdplint.trace import (
    Guard,
    GuardKind,
    Layout,
    OptimizerBuilt,
    Saved,
    StateLoaded,
    StateTaken,
    Trace,
)
from fsdplint.trace.queries.common import optimizer_of, perhaps_one_rank

API = "torch.distributed.checkpoint.state_dict"
GETTERS = ("get_model_state_dict", "get_optimizer_state_dict")
FULL = "full_state_dict=True, cpu_offload=True"


@dataclass
class Taking:
    """A call of `state_dict()` whose result is written to a file.

    saved_by: the call in the same function through which the state is written.
    arguments: the arguments of its getter: the model, and the optimizer for an optimizer state.
    place: its place under a rank test, if any.
    """

    source: Source
    call: cst.Call
    saved_by: cst.Call
    getter: str
    arguments: list[str]
    place: GuardedStatement | None

    @property
    def name(self) -> str:
        return "model_state" if self.getter == GETTERS[0] else "optimizer_state"


def options_text(rewrite: Rewrite, source: Source, at: cst.CSTNode, arguments: str = FULL) -> str:
    """The text of `StateDictOptions(...)`."""
    return f"{rewrite.need_import(source, API, 'StateDictOptions', at=at)}({arguments})"


# Saving ----------------------------------------------------------------------------------------


def gather_and_save(rewrite: Rewrite, finding: Finding, program: Program) -> bool:
    """Gather the sharded states of a finding on all ranks and write them on rank 0.

    finding: its first event is the `Saved`, the others are the `StateTaken`s.

    Returns:
        Whether the rewrite was possible.
    """
    saved = finding.events[0]
    found = call_at(finding.site)
    if found is None or not isinstance(saved, Saved):
        return False
    save = found[1]
    calls = [found, *filter(None, map(call_at, saved.stack))]
    takings = takings_of(finding, program, calls)
    if not takings:
        return False
    source = takings[0].source
    if any(taking.place is not None for taking in takings):
        return saved.ranks.partial and _take_out(rewrite, source, takings)
    if any(taking.saved_by is not save for taking in takings):
        # A function of the program writes the file; it must be written for a single rank.
        if not saved.ranks.partial:
            return False
        _in_place(rewrite, source, takings)
        return True
    inside = [taking for taking in takings if is_within(source, taking.call, save)]
    texts: dict[cst.CSTNode, str] = {}
    if saved.ranks.partial:
        if inside:
            return False
    elif inside:
        statement = guardable(source, save) or layout.statement_of(source, save)
        if not all(liftable(source, taking.call, statement) for taking in inside):
            return False
        texts = _name_before(rewrite, source, save, inside)
    if not saved.ranks.partial and not on_rank0(rewrite, source, save, texts):
        return False
    _in_place(rewrite, source, [taking for taking in takings if taking not in inside])
    return True


def takings_of(
    finding: Finding, program: Program, calls: list[tuple[Source, cst.Call]]
) -> list[Taking] | None:
    """The replacements of the finding's state dicts; None if one of them has none.

    calls: the call that saves, and the calls of the program's functions that lead to it.
    """
    result: dict[cst.Call, Taking] = {}
    events = [event for event in finding.events if isinstance(event, StateTaken)]
    for event in events:
        found = call_at(event.site)
        if found is None or event.layout is not Layout.SHARDED:
            return None
        source, call = found
        saved_by = _saved_by(source, call, calls)
        getter = _getter(program, source, call, event)
        if getter is None or saved_by is None or _differs(program, event):
            return None
        place = None
        if perhaps_one_rank(event):
            guard = rank_guard(event)
            place = guarded_statement(source, call, guard, program) if guard is not None else None
            if place is None or not may_overtake(source, call, place):
                return None
        result[call] = Taking(source, call, saved_by, *getter, place)
    takings = list(result.values())
    same_calls = len({(t.source, t.place is None) for t in takings}) == 1
    return takings if same_calls else None


def _differs(program: Program, event: StateTaken) -> bool:
    """Whether all ranks take a state in one configuration, and only some in another."""
    return any(
        other.site == event.site and other.ranks.partial is not event.ranks.partial
        for trace in program.traces
        for other in trace.of(StateTaken)
    )


def _getter(
    program: Program, source: Source, call: cst.Call, event: StateTaken
) -> tuple[str, list[str]] | None:
    """The getter that returns the same state, and its arguments without the options."""
    api = event.api.rpartition(".")[2]
    if api in GETTERS:
        if any(arg.star or arg.keyword is not None for arg in call.args):
            return None
        return api, [source.code(arg.value) for arg in call.args]
    text = receiver(source, call) if api == "state_dict" else None
    if text is None or call.args:
        return None
    built = _optimizer_built(program, event)
    if built is None:
        return GETTERS[0], [text]
    model = model_of(program, source, call, built)
    return (GETTERS[1], [model, text]) if model is not None else None


def _saved_by(
    source: Source, call: cst.Call, calls: list[tuple[Source, cst.Call]]
) -> cst.Call | None:
    """The call in the same function that saves the unchanged result of `call`.

    None if there is none, or if other code uses the value, because it may need the current layout.
    `call` must be inside the call that saves, or in a statement that assigns it (directly or in a
    dict) to a name. The name may be used only for the file, its length and further items of the
    file.
    """
    scope = function_around(source, call)
    near = [c for s, c in calls if s is source and function_around(source, c) is scope]
    if len(near) != 1:
        return None
    save = near[0]
    if is_within(source, call, save):
        return save
    statement = layout.statement_of(source, call)
    if not isinstance(statement, cst.Assign):
        return None
    target = statement.targets[0].target
    if len(statement.targets) != 1 or not isinstance(target, cst.Name):
        return None
    only = all(
        use is target or is_within(source, use, save) or _harmless(source, use)
        for use in uses(scope, target.value)
    )
    return save if only else None


def _harmless(source: Source, use: cst.Name) -> bool:
    parent = source.parent(use)
    if isinstance(parent, cst.Subscript):  # `checkpoint["step"] = step`
        return isinstance(source.parent(parent), cst.AssignTarget)
    if isinstance(parent, cst.Arg):
        function = source.parent(parent)
        return isinstance(function, cst.Call) and dotted_name(function.func) == "len"
    if isinstance(parent, cst.DictElement):  # a dict inside another dict
        call = source.parent(parent)
        return isinstance(call, cst.Dict) and isinstance(source.parent(call), cst.Assign)
    return isinstance(parent, cst.Del)


def rank_guard(event: StateTaken | Saved) -> Guard | None:
    guards = [g for g in event.guards if g.kind is GuardKind.RANK and g.ranks.partial]
    return guards[-1] if len(guards) == 1 else None


def _optimizer_built(program: Program, event: StateTaken) -> OptimizerBuilt | None:
    trace = trace_of(program, event)
    return optimizer_of(trace, event.of) if trace is not None else None


def _shared_options(
    rewrite: Rewrite, source: Source, at: cst.CSTNode, count: int
) -> tuple[list[str], str]:
    """Lines to insert first, and the text of the options: several getters share a variable."""
    options = options_text(rewrite, source, at)
    if count < 2:
        return [], options
    name = free_name(source, at, "options")
    return [f"{name} = {options}"], name


def _getter_lines(
    rewrite: Rewrite, source: Source, takings: list[Taking], at: cst.CSTNode
) -> tuple[list[str], dict[cst.CSTNode, str]]:
    """Lines that gather states into variables, and the variable for each call."""
    lines, options = _shared_options(rewrite, source, at, len(takings))
    names: dict[cst.CSTNode, str] = {}
    for taking in takings:
        getter = rewrite.need_import(source, API, taking.getter, at=taking.call)
        name = free_name(source, taking.call, taking.name)
        while name in names.values():
            name += "_"
        arguments = [*taking.arguments, f"options={options}"]
        lines += call_lines(source, at, f"{name} = {getter}", arguments)
        names[taking.call] = name
    return lines, names


def _name_before(
    rewrite: Rewrite, source: Source, save: cst.Call, takings: list[Taking]
) -> dict[cst.CSTNode, str]:
    """Gather states before the statement that saves them."""
    ordered = sorted(takings, key=lambda taking: source.span(taking.call)[0])
    statement = guardable(source, save) or layout.statement_of(source, save)
    lines, names = _getter_lines(rewrite, source, ordered, statement)
    rewrite.insert_before(source, statement, lines)
    return names


def _take_out(rewrite: Rewrite, source: Source, takings: list[Taking]) -> bool:
    """Gather states before the rank test around them."""
    places = {taking.place.test: taking.place for taking in takings if taking.place is not None}
    if len(places) != 1:
        return False
    ((test, place),) = places.items()
    ordered = sorted(takings, key=lambda taking: source.span(taking.call)[0])
    lines, names = _getter_lines(rewrite, source, ordered, test)
    single_name = _only_name(source, ordered)
    if single_name is not None:  # `state = model.state_dict()`: move the statement with its name
        (name,) = names.values()
        lines = [
            single_name + line.removeprefix(name) if line.startswith(name) else line
            for line in lines
        ]
        rewrite.delete_statement(source, layout.statement_of(source, ordered[0].call))
    else:
        for call, name in names.items():
            rewrite.replace(source, call, name)
    rewrite.insert_before(source, test, place.lines(lines))
    return True


def _only_name(source: Source, takings: list[Taking]) -> str | None:
    """The name that the only state is assigned to, if the statement does nothing else."""
    if len(takings) != 1:
        return None
    statement = layout.statement_of(source, takings[0].call)
    if isinstance(statement, cst.Assign) and statement.value is takings[0].call:
        targets = [target.target for target in statement.targets]
        if len(targets) == 1 and isinstance(targets[0], cst.Name):
            return targets[0].value
    return None


def _in_place(rewrite: Rewrite, source: Source, takings: list[Taking]) -> None:
    """Gather states at the calls that take them."""
    by_statement: dict[cst.CSTNode, list[Taking]] = {}
    for taking in takings:
        by_statement.setdefault(layout.statement_of(source, taking.call), []).append(taking)
    for statement, grouped in by_statement.items():
        options = "options" if len(grouped) > 1 else f"StateDictOptions({FULL})"
        texts = {
            taking.call: call_in_place(
                source, taking.call, taking.getter, [*taking.arguments, f"options={options}"]
            )
            for taking in grouped
        }
        is_value = isinstance(statement, cst.Assign) and statement.value in texts
        lift = not is_value and all(liftable(source, call, statement) for call in texts)
        if lift and any("\n" in text for text in texts.values()):
            # In the middle of a line that would become too long, each state gets a name.
            lines, names = _getter_lines(rewrite, source, grouped, statement)
            rewrite.insert_before(source, statement, lines)
            for call, name in names.items():
                rewrite.replace(source, call, name)
            continue
        lines, options = _shared_options(rewrite, source, statement, len(grouped))
        if lines:
            rewrite.insert_before(source, statement, lines)
        for taking in grouped:
            getter = rewrite.need_import(source, API, taking.getter, at=taking.call)
            arguments = [*taking.arguments, f"options={options}"]
            text = call_in_place(source, taking.call, getter, arguments)
            rewrite.replace(source, taking.call, text)


# Loading ---------------------------------------------------------------------------------------


def load_with_setter(rewrite: Rewrite, finding: Finding, program: Program) -> Safety | None:
    """Replace `load_state_dict` by `set_model_state_dict` or `set_optimizer_state_dict`.

    Returns:
        The safety of the rewrite; None if it was not possible.
    """
    event = finding.events[0]
    found = call_at(finding.site)
    if found is None or not isinstance(event, StateLoaded) or perhaps_one_rank(event):
        return None
    source, call = found
    text, state = receiver(source, call), argument(call, 0, "state_dict")
    known = {"state_dict", "strict", "assign"}
    named = [arg.keyword.value for arg in call.args if arg.keyword is not None]
    if text is None or state is None or any(arg.star for arg in call.args):
        return None
    if not known.issuperset(named):
        return None
    trace = trace_of(program, event)
    built = optimizer_of(trace, event.into) if trace is not None else None
    used = not isinstance(source.parent(call), cst.Expr)
    options = "full_state_dict=True"
    if _on_rank0(trace, event):
        options += ", broadcast_from_rank0=True"
    if built is not None:
        model = model_of(program, source, call, built)
        if model is None or used:
            return None
        setter, arguments = "set_optimizer_state_dict", [model, text]
    else:
        setter, arguments = "set_model_state_dict", [text]
        strict = argument(call, 1, "strict")
        if strict is not None and source.code(strict.value) != "True":
            options += f", strict={source.code(strict.value)}"
    if layout.comments(source, call) or layout.string_lines(source, call):
        return None
    function = rewrite.need_import(source, API, setter, at=call)
    arguments += [
        source.code(state.value),
        f"options={options_text(rewrite, source, call, options)}",
    ]
    rewrite.replace(source, call, call_in_place(source, call, function, arguments))
    return Safety.UNSAFE if used or built is not None else Safety.SAFE


def _on_rank0(trace: Trace | None, event: StateLoaded) -> bool:
    """Whether only rank 0 has the state."""
    if trace is None:
        return False
    return any(
        taking.rank0_only and taking.state == event.state
        for taking in trace.before(event, StateTaken)
    )

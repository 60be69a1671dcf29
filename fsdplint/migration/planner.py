"""Makes the plan of a migration, which rewrites every use of FSDP1 in files that belong together, or
none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fsdplint.config.options import Assist
from fsdplint.diagnostics.finding import Edit, Fix, Import, Safety
from fsdplint.interpreter import Program
from fsdplint.migration import framework_configs, unread_parameters
from fsdplint.migration.analysis import (
    ambiguous_imports,
    importing_files,
    parallel_settings,
    remaining_uses,
    uncalled_functions,
)
from fsdplint.migration.analysis.components import parts
from fsdplint.migration.assisted.undecided import Undecided, is_of_whole_program
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.lightning import STRATEGY_LEFT
from fsdplint.migration.blockers.program import PROGRAM_TOO_LARGE, REWRITES_CLASH, TOO_MANY_USES
from fsdplint.migration.context import Migration
from fsdplint.migration.direct_form import fabric_strategies
from fsdplint.migration.direct_form.original_edits import blockers_moved_back, moved_back
from fsdplint.migration.direct_form.relevance import Depth
from fsdplint.migration.direct_form.rewriting import DirectForm, deepen
from fsdplint.migration.passes import PASSES
from fsdplint.migration.passes.state import PassState, references
from fsdplint.migration.plan import Plan, is_inside
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend

MAX_USES = 500  # of FSDP1, in one migration
UNTRIED = "not all classes and functions that a setting may choose were tried"
UNTRIED_DETAIL = (
    "The others may have what the new code does not handle: batch norms, buffers, frozen parameters, "
    "states of their own. Read those that the setting may choose, and run each of them once. Or put "
    "constants in place of the settings; then run this again."
)
ABOUT_REWRITES = (PROGRAM_TOO_LARGE, TOO_MANY_USES, REWRITES_CLASH)  # not about the program
MAX_ROUNDS = 30  # in which an assisted migration sets statements aside


def plans_of(program: Program) -> list[Plan]:
    """The plans of a program, one for each set of files that belong together (cached)."""
    if "plans" not in program.cache:
        program.cache["plans"] = [
            _assist(part, files, make_plan(part, files), program.options.assist)
            for part, files in parts(program)
        ]
    result: list[Plan] = program.cache["plans"]
    return result


def plan_for(program: Program, source: Source) -> Plan | None:
    """The plan that a file belongs to."""
    return next((plan for plan in plans_of(program) if source in plan.sources), None)


def make_plan(program: Program, sources: list[Source]) -> Plan:
    """The plan for some files, as they are or through their direct form.

    The blockers are those of the most direct form: what a form solves is no obstacle.
    """
    plan = _plan_as_is(program, sources)
    if not plan.blockers or any(cut.unfinished for cut in program.cuts.values()):
        return plan
    direct, left = DirectForm(program, list(sources)), plan.blockers
    blocked = fabric_strategies.write_functions(direct)
    if blocked:
        plan.blockers = _without_strategies(plan.blockers) + blocked
        return plan
    for depth in (None, *Depth) if blocked is not None else Depth:
        if depth is None or deepen(direct, depth):
            other = _plan_as_is(direct.program, direct.sources)
            program.files_to_fix |= direct.program.files_to_fix
            if not other.blockers:
                moved = moved_back(other, direct, program, sources)
                # A file that was not read may import what the direct form does not have.
                if not importing_files.check(Migration(program, sources), moved.edits):
                    return moved
            elif not any(one.blocker in ABOUT_REWRITES for one in other.blockers):
                left = blockers_moved_back(other, direct, program)
    plan.blockers = left
    return plan


def _without_strategies(blockers: list[Blocked]) -> list[Blocked]:
    """The blockers that are not about strategies whose own blockers are known."""
    return [one for one in blockers if one.blocker is not STRATEGY_LEFT]


def _assist(program: Program, sources: list[Source], plan: Plan, assist: Assist | None) -> Plan:
    """The plan, or if it is blocked, one that sets the blocking statements aside.

    A blocker of the whole program stays.
    """
    if assist is None:
        return plan
    undecided = Undecided(program, sources)
    undecided.add_refused(assist.refused)
    if not plan.blockers and not undecided.places:
        return plan
    for _ in range(MAX_ROUNDS):
        other = _plan_as_is(program, sources, undecided)
        if not other.blockers:
            return other
        if not undecided.add(other.blockers):
            whole = [one for one in other.blockers if is_of_whole_program(one)]
            known = {(one.code, one.source.path) for one in plan.blockers}
            plan.blockers += [x for x in whole if (x.code, x.source.path) not in known]
            break
    return plan


def _plan_as_is(
    program: Program, sources: list[Source], undecided: Undecided | None = None
) -> Plan:
    """The plan for some files. Functions that nothing calls may stay as they are."""
    plan = _make_plan(program, sources, {}, undecided)
    untouched = uncalled_functions.find_uncalled(program, plan.blockers)
    if not untouched:
        return plan
    other = _make_plan(program, sources, untouched, undecided)
    return plan if _touches(other, untouched) else other


def _touches(plan: Plan, functions: uncalled_functions.Functions) -> bool:
    """Whether a plan changes, or is blocked by, code in some functions."""
    return any(
        is_inside(source, function, blocker.node)
        for function, source in functions.items()
        for blocker in plan.blockers
        if blocker.source is source
    ) or any(
        edit.path == source.path
        and source.span(function)[0] <= edit.start < source.span(function)[1]
        for function, source in functions.items()
        for edit in plan.edits
    )


def _make_plan(
    program: Program,
    sources: list[Source],
    untouched: uncalled_functions.Functions,
    undecided: Undecided | None = None,
) -> Plan:
    undecided = undecided or Undecided(program, sources)
    names = frozenset((one.path, function.name.value) for function, one in untouched.items())
    plan = Plan(f"migration of {sources[0].path}", sources, untouched=names)
    nodes_of = (node for function in untouched for node in descend(function))
    migration = Migration(program, sources, frozenset(nodes_of), undecided.nodes)
    migration.blocking_if_called.update(untouched.items())
    too_large = _too_many_uses(migration) or _cut_short(migration)
    if too_large is not None:
        plan.blockers = [too_large]
        return plan
    state = PassState(migration)
    for run_pass in PASSES:
        run_pass(state)
    plan.blockers = undecided.uncovered_blockers(migration.blockers) or undecided.enclosing(
        migration
    )
    if plan.blockers:
        return plan
    undecided.write(migration)
    _note_untried(migration)
    migration.finish()
    try:
        fix = migration.rewrite.fix("Migrate to FSDP2", Safety.SAFE)
        fix = ambiguous_imports.place_imports(migration, fix)
    except ValueError:
        step = migration.steps[0]
        reason = REWRITES_CLASH()
        plan.blockers = [Blocked(step.source, step.node, reason)]
        return plan
    plan.blockers = undecided.uncovered_blockers(_check_fix(migration, fix))
    if plan.blockers:
        return plan
    plan.undecided = undecided
    plan.steps = migration.steps
    unread_parameters.note(migration, fix.edits)
    plan.edits, plan.imports, plan.maybe_unused_imports = (
        fix.edits,
        tuple(one for one in fix.imports if _is_used(*one, fix.edits)),
        fix.maybe_unused_imports,
    )
    plan.notes = tuple(migration.notes.values())
    return plan


def _is_used(path: str, addition: Import, edits: Sequence[Edit]) -> bool:
    """Whether a new text of a file has a name: the text that needed it may have been dropped."""
    name = addition.alias or addition.name or addition.module.partition(".")[0]
    word = re.compile(rf"\b{re.escape(name)}\b")
    return any(edit.path == path and word.search(edit.text) for edit in edits)


def _too_many_uses(migration: Migration) -> Blocked | None:
    """The blocker of files with too many uses of FSDP1, since each is compared with all others."""
    for number, (source, node, _) in enumerate(references(migration), 1):
        if number > MAX_USES:
            reason = TOO_MANY_USES(limit=MAX_USES)
            return Blocked(source, node, reason)
    return None


def _cut_short(migration: Migration) -> Blocked | None:
    """The blocker of a program that the interpreter did not follow to its end."""
    for cut in migration.program.cuts.values():
        if cut.unfinished:
            reason = PROGRAM_TOO_LARGE(limit=cut.reason)
            return Blocked(cut.site.source, cut.site.node, reason)
    return None


def _note_untried(migration: Migration) -> None:
    """Note that other values which a name may choose were not tried: the user knows what they are."""
    for cut in migration.program.cuts.values():
        if cut.untried:
            site = cut.site
            migration.note(UNTRIED, site.source, site.node, detail=UNTRIED_DETAIL, unsafe=True)


def _check_fix(migration: Migration, fix: Fix) -> list[Blocked]:
    """The blockers of code that reads what the rewrite changes."""
    return [
        *importing_files.check(migration, fix.edits),
        *parallel_settings.check(migration),
        *framework_configs.check(migration, fix.edits),
        *remaining_uses.check(migration, fix.edits),
        *ambiguous_imports.check_edits(migration, fix),
    ]

"""The plan of a migration: every use of FSDP1 in files that belong together, rewritten or none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import libcst as cst

from fsdplint.diagnostics.finding import Edit, Fix, Import, Safety
from fsdplint.diagnostics.finding import Note as FixNote
from fsdplint.fixes.clipping import CLIP
from fsdplint.interpreter import Program
from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration import checks, framework_configs, symbols, unread_parameters
from fsdplint.migration.analysis import (
    ambiguous_imports,
    importing_files,
    parallel_settings,
    remaining_uses,
    uncalled_functions,
)
from fsdplint.migration.analysis.components import parts
from fsdplint.migration.constructor import (
    configs,
    enabled,
    enum_reads,
    mesh_names,
    policy_readers,
    precision,
    precision_reads,
    strategy,
    unused_policies,
    wrap,
)
from fsdplint.migration.context import Blocked, Migration, Note, Step, attributes, nodes
from fsdplint.migration.names import FSDP, fsdp1_name
from fsdplint.migration.state_dicts import (
    helpers,
    kinds,
    optim_state,
    optimizers,
    part_states,
    pretrained,
    set_types,
)
from fsdplint.migration.training import (
    classes,
    clipping,
    gradients,
    loop,
    part_forward,
    summon,
    wrapper,
)
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.layout import descend, statement_of
from fsdplint.syntax.qualified_names import PUBLIC, canonical, dotted
from fsdplint.trace import Location


@dataclass
class Plan:
    """What becomes of some files.

    Attributes:
        group: the name of the group of fixes.
        blockers: why nothing is rewritten; empty where all of it is.
        steps: the uses that are rewritten, with a title each.
        edits, imports, unused: the whole rewrite.
        notes: what changes in cost or in a detail of behaviour.
    """

    NAMED: ClassVar[int] = 2  # notes that a title has room for

    group: str
    sources: list[Source]
    blockers: list[Blocked] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    edits: tuple[Edit, ...] = ()
    imports: tuple[tuple[str, Import], ...] = ()
    unused: tuple[tuple[str, str], ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def safety(self) -> Safety:
        """Whether the program trains as before, as far as is known."""
        return Safety.UNSAFE if any(note.unsafe for note in self.notes) else Safety.SAFE

    def fix(self, source: Source, node: cst.CSTNode) -> Fix:
        """The whole rewrite, as the fix of the use at a node.

        Every use has all of it: half a migration is worse than none, whichever rules are chosen.
        """
        title = next(
            (s.title for s in self.steps if s.source is source and _inside(source, s.node, node)),
            "Migrate to FSDP2",
        )
        if self.notes and title == wrap.TITLE:
            texts = [note.text for note in self.notes[: self.NAMED]]
            if len(self.notes) > self.NAMED:
                texts.append(f"{len(self.notes) - self.NAMED} more: see `fsdplint migrate`")
            title = f"{title} ({'; '.join(texts)})"
        return Fix(
            title=title,
            safety=self.safety,
            edits=self.edits,
            imports=self.imports,
            group=self.group,
            unused=self.unused,
            notes=tuple(_public(note) for note in self.notes),
        )

    def refuse(self, program: Program, reason: str, at: Location | None) -> None:
        """Block the migration, whose result is wrong; at the line that this is about, if there is
        one, else where the model is wrapped."""
        if self.blockers:
            return
        step = next((one for one in self.steps if one.title == wrap.TITLE), self.steps[0])
        source, node = step.source, step.node
        if at is not None and at.path in program.sources:
            source = program.sources[at.path]
            here = [x.node for x in self.steps if x.source is source and _on_line(x, at.line)]
            here += [x for x in nodes(source) if _is_line(source, x, at.line)]
            source, node = (source, here[0]) if here else (step.source, node)
        self.blockers = [Blocked(source, node, reason)]

    def blockers_at(self, source: Source, node: cst.CSTNode) -> list[Blocked]:
        """The blockers within a use, or around it (but for the statements around it)."""
        return [
            blocker
            for blocker in self.blockers
            if blocker.source is source
            and (
                _inside(source, node, blocker.node)
                or (
                    isinstance(blocker.node, cst.BaseExpression)
                    and _inside(source, blocker.node, node)
                )
            )
        ]


def _public(note: Note) -> FixNote:
    """A note as a part of a fix."""
    return FixNote(note.text, note.detail, tuple(s.location(node) for s, node in note.places))


def _on_line(step: Step, line: int) -> bool:
    return step.source.location(step.node).line == line


def _is_line(source: Source, node: cst.CSTNode, line: int) -> bool:
    """Whether a node is the statement that begins in a line."""
    simple = isinstance(node, cst.BaseSmallStatement | cst.BaseCompoundStatement)
    return simple and source.location(node).line == line


def _inside(source: Source, outer: cst.CSTNode, node: cst.CSTNode) -> bool:
    start, end = source.span(outer)
    left, right = source.span(node)
    return start <= left and right <= end


def plans_of(program: Program) -> list[Plan]:
    """The plans of a program, one for each set of files that belong together; made once."""
    if "plans" not in program.kept:
        program.kept["plans"] = [make_plan(part, files) for part, files in parts(program)]
    result: list[Plan] = program.kept["plans"]
    return result


def plan_for(program: Program, source: Source) -> Plan | None:
    """The plan that a file belongs to."""
    return next((plan for plan in plans_of(program) if source in plan.sources), None)


# Making a plan -------------------------------------------------------------------------------------


MAX_USES = 500  # of FSDP1, in one migration

# Names whose references a rewrite of something else takes care of.
CARRIED = {
    FSDP,
    "StateDictType",
    "FullStateDictConfig",
    "FullOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardedOptimStateDictConfig",
    "BackwardPrefetch",
    "CPUOffload",
    "MixedPrecision",
    "ModuleWrapPolicy",
    "CustomPolicy",
    "transformer_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "lambda_auto_wrap_policy",
    "always_wrap_policy",
    "_or_policy",
    "_module_wrap_policy",
}

CONFIG_STEPS = {
    strategy.ENUM: "Name the strategy by a string",
    "StateDictType": "Name the kind of state by a string",
    "MixedPrecision": "Say the precision with MixedPrecisionPolicy",
    "CPUOffload": "Say the offloading with CPUOffloadPolicy",
    "BackwardPrefetch": "Leave out what FSDP2 always does",
}


def _carried(name: str) -> bool:
    head, _, member = name.partition(".")
    own = head == FSDP and member not in (
        "",
        *kinds.OPTIMIZER_METHODS,
        "state_dict_type",
        "set_state_dict_type",
    )
    return head in CARRIED and not own


class Planner:
    """Rewrites one set of files; everything that it cannot becomes a blocker."""

    def __init__(
        self, program: Program, sources: list[Source], untouched: uncalled_functions.Functions
    ) -> None:
        nodes_of = (node for function in untouched for node in descend(function))
        self.migration = Migration(program, sources, frozenset(nodes_of))
        self.migration.unread.update(untouched.items())
        self.precision = precision.Precision()
        self.states = {source: optim_state.States(self.migration, source) for source in sources}
        self.types = set_types.SetTypes(self.migration)
        for states in self.states.values():
            states.others = self.states
            states.types = self.types

    def too_many(self) -> Blocked | None:
        """What says that there is too much of FSDP1 for one migration: each use is looked at
        together with all others."""
        for number, (source, node, _) in enumerate(self._references(), 1):
            if number > MAX_USES:
                reason = f"more than {MAX_USES} uses of FSDP1 belong together; migrate by hand"
                return Blocked(source, node, reason)
        return None

    def unfinished(self) -> Blocked | None:
        """What says that a program of these files was not followed to its end, so that what it does
        after that with what is to be changed is not known."""
        for cut in self.migration.program.cuts.values():
            if cut.unfinished:
                reason = f"the program is too large: {cut.what}, and what comes then is not known"
                return Blocked(cut.site.source, cut.site.node, reason)
        return None

    def run(self) -> None:
        for source in self.migration.sources:
            self._star(source)
            ambiguous_imports.settle(self.migration, source)
        policy_readers.keep(self.migration)
        mesh_names.rewrite(self.migration)
        enum_reads.rewrite(self.migration)
        for source, node, name in self._references():
            self._try(lambda s=source, n=node, x=name: self._config(s, n, x))  # type: ignore[misc]
        for source in self.migration.sources:
            self._try(lambda s=source: precision_reads.rewrite(self.migration, s, self.precision))  # type: ignore[misc]
        blocks = enabled.collect(self.migration)
        summons: list[summon.Summon] = []
        for source, node in self._summons():
            self._try(lambda s=source, n=node: summons.append(self._summon(s, n)))  # type: ignore[misc]
        for source in self.migration.sources:
            self._uses(source)
        for one in summons:
            self._try(one.write)
        for source in self.migration.sources:
            gradients.rewrite(self.migration, source)
            wrapper.check_names(self.migration, source)
            classes.rewrite_quoted(self.migration, source)
        self._set_types()
        typed = [(s, n) for s, n, x in self._references() if x == f"{FSDP}.state_dict_type"]
        for source, node in typed:
            self.states[source].announce(node)
        for source, node in reversed(typed):  # what is nested before what is around it
            self._try(lambda s=source, n=node: self._block(s, n))  # type: ignore[misc]
        for source in self.migration.sources:
            self._plain_states(source)
        for source in self.migration.sources:
            self._optimizer_loads(source)
        for block in reversed(blocks):
            self._try(lambda b=block: enabled.rewrite(self.migration, b, self.precision))  # type: ignore[misc]
        wrapped = {part for block in blocks for part in descend(block.call)}
        for source, node, name in reversed(list(self._references())):
            if node in wrapped:
                continue
            if name == f"{FSDP}.fsdp_modules":
                self.migration.claimed.add(node)
                self._try(lambda s=source, n=node: classes.rewrite_modules(self.migration, s, n))  # type: ignore[misc]
            if name == FSDP:
                self._try(lambda s=source, n=node: self._class(s, n))  # type: ignore[misc]
        self._rest()

    def _try(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except Blocked as blocked:
            self.migration.blockers.append(blocked)
            return False
        return True

    def _references(self) -> Iterator[tuple[Source, cst.CSTNode, str]]:
        for source in self.migration.sources:
            for node in nodes(source):
                if node in self.migration.names and node not in self.migration.claimed:
                    yield source, node, self.migration.names[node]

    def _summons(self) -> list[tuple[Source, cst.CSTNode]]:
        """The references to `summon_full_params`, through the class or a wrapped model."""
        found = [(s, n) for s, n, name in self._references() if name == summon.API]
        for source in self.migration.sources:
            for node in attributes(source):
                if node.attr.value == "summon_full_params" and self._receives(node):
                    found.append((source, node))
        return found

    def _summon(self, source: Source, node: cst.CSTNode) -> summon.Summon:
        self.migration.claimed.add(node)
        return summon.collect(self.migration, source, node, self.precision)

    def _star(self, source: Source) -> None:
        """A private module of FSDP1 has no list of the names that `import *` gives."""
        for node in source.descend(source.tree):
            if not isinstance(node, cst.ImportFrom) or not isinstance(node.names, cst.ImportStar):
                continue
            module = dotted(node.module) if node.module is not None else None
            if node.relative or module is None or module in PUBLIC:
                continue
            if fsdp1_name(module) is not None:
                reason = f"`import *` hides which names of `{module}` are used"
                self.migration.blockers.append(Blocked(source, node, reason))

    def _config(self, source: Source, node: cst.CSTNode, name: str) -> None:
        """Enums and config objects, wherever they stand."""
        head = name.partition(".")[0]
        if head == strategy.ENUM:
            strategy.to_string(self.migration, source, node, name)
        elif head == "StateDictType":
            configs.state_type(self.migration, source, node, name)
        elif head == "BackwardPrefetch":
            configs.prefetch(self.migration, source, node, name)
        elif head in ("MixedPrecision", "CPUOffload"):
            configs.rewrite(self.migration, source, node, name, self.precision)
        elif head == "ShardedGradScaler":
            loop.rewrite_scaler(self.migration, source, node)
        if head in CONFIG_STEPS and node in self.migration.claimed:
            call = source.parent(node)
            whole = call if isinstance(call, cst.Call) and call.func is node else node
            self.migration.step(source, whole, CONFIG_STEPS[head])

    def _uses(self, source: Source) -> None:
        """Methods and attributes of FSDP1 modules, but for their states."""
        for node in nodes(source):
            if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
                name = node.func.attr.value
                clips = name == "clip_grad_norm_" and clipping.clips_own(
                    self.migration, source, node
                )
                if clips or (name in ("clip_grad_norm_", "no_sync") and self._receives(node.func)):
                    rewrite = (
                        clipping.rewrite_clipping
                        if name == "clip_grad_norm_"
                        else loop.rewrite_no_sync
                    )
                    self._try(lambda r=rewrite, n=node: r(self.migration, source, n))  # type: ignore[misc]
        for node in reversed(attributes(source)):
            if node not in self.migration.symbols or self.migration.wrapped(node.value):
                if node.attr.value == wrapper.INNER:
                    self._try(
                        lambda n=node: wrapper.rewrite_inner(self.migration, source, n)  # type: ignore[misc]
                    )
                    continue
                if not self.migration.wrapped(node.value):
                    if node.attr.value == "forward":
                        self._try(
                            lambda n=node: part_forward.rewrite(  # type: ignore[misc]
                                self.migration, source, n
                            )
                        )
                    self._try(
                        lambda n=node: wrapper.check_private(self.migration, source, n)  # type: ignore[misc]
                    )
                    continue
                if self.migration.tested(node.value) == "sometimes":
                    self._try(
                        lambda n=node: loop.check_one_of_several(  # type: ignore[misc]
                            self.migration, source, n
                        )
                    )
                if node.attr.value == "module":
                    self._try(
                        lambda n=node: loop.rewrite_inner_module(self.migration, source, n)  # type: ignore[misc]
                    )
                elif node.attr.value == "forward":
                    self._try(
                        lambda n=node: loop.rewrite_forward(self.migration, source, n)  # type: ignore[misc]
                    )
                else:
                    self._try(
                        lambda n=node: loop.check_attribute(self.migration, source, n)  # type: ignore[misc]
                    )

        for node in nodes(source):
            if isinstance(node, cst.Call) and self.migration.symbol(node.func) == CLIP:
                self._try(lambda n=node: clipping.complete_norm(self.migration, source, n))  # type: ignore[misc]

    def _receives(self, func: cst.Attribute) -> bool:
        return bool(self.migration.wrapped(func.value))  # imported from another file, too

    def _is_fsdp2(self, node: cst.CSTNode) -> bool:
        """Whether a node is a model that `fully_shard` shards, whose type FSDP1 cannot set."""
        values = self.migration.values(node)
        return bool(values) and all(
            isinstance(value, ModuleValue) and value.sharded and not value.wrapper
            for value in values
        )

    def _set_types(self) -> None:
        """`FSDP.set_state_dict_type(...)`: what holds for all states that no block is about."""
        for source, node, name in list(self._references()):
            call = source.parent(node)
            if name == f"{FSDP}.set_state_dict_type" and isinstance(call, cst.Call):
                self._try(lambda s=source, n=call: self._set_type(s, n))  # type: ignore[misc]

    def _set_type(self, source: Source, call: cst.Call) -> None:
        self.types.add(source, call, self.states[source].kind(call)[0])

    def _block(self, source: Source, node: cst.CSTNode) -> None:
        call = source.parent(node)
        if not isinstance(call, cst.Call) or call.func is not node:
            raise self.migration.block(
                source, node, "`state_dict_type` that is not the head of a `with` block"
            )
        if helpers.is_helper(source, call):
            helpers.rewrite_helper(self.migration, self.states, source, call)
            return
        self.states[source].block(call)

    def _plain_states(self, source: Source) -> None:
        """State dicts that are taken or loaded outside of a `state_dict_type` block."""
        states = self.states[source]
        kind = kinds.DEFAULT
        for node in reversed(nodes(source)):  # what is nested before what is around it
            if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
                continue
            if node in states.done:
                continue
            name = self.migration.fsdp1(node.func).removeprefix(FSDP + ".")
            attribute = node.func.attr.value
            if name and name in kinds.OPTIMIZER_METHODS and node.func not in self.migration.claimed:
                self._try(lambda n=node: states.rewrite(n, kind))  # type: ignore[misc]
            elif attribute in ("state_dict", "load_state_dict") and (
                self._receives(node.func) or (self.types.calls and self._is_fsdp2(node.func.value))
            ):
                self._try(lambda n=node: states.plain(n, kind))  # type: ignore[misc]
            elif attribute in pretrained.METHODS:
                self._try(lambda n=node: pretrained.rewrite(self.migration, source, n))  # type: ignore[misc]
            elif node in part_states.calls(self.migration):
                self._try(lambda n=node: states.plain(n, kind))  # type: ignore[misc]
            elif attribute == "state_dict":
                self._try(lambda n=node: optimizers.rewrite_take(self.migration, states, n))  # type: ignore[misc]

    def _optimizer_loads(self, source: Source) -> None:
        states = self.states[source]
        for node in nodes(source):
            if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
                continue
            if node.func.attr.value == "load_state_dict" and node not in states.done:
                self._try(lambda n=node: optimizers.rewrite_load(self.migration, states, n))  # type: ignore[misc]

    def _class(self, source: Source, node: cst.CSTNode) -> None:
        call = source.parent(node)
        if isinstance(call, cst.Call) and call.func is node:
            wrap.rewrite_wrap(self.migration, source, call, self.precision)
        else:
            classes.rewrite_class_reference(self.migration, source, node)

    def _rest(self) -> None:
        """Every reference that nothing has accounted for blocks."""
        if not self.migration.blockers:
            ambiguous_imports.check_given(self.migration)
            unused_policies.rewrite(self.migration)
            checks.run(self.migration)
        cause = bool(self.migration.blockers)
        for source, node, name in self._references():
            # What a blocked use would have taken care of is not named a second time.
            if not (cause and _carried(name)):
                # `FSDP.forward` that is not called here: it is kept, or another one put in its place.
                member = name.startswith(f"{FSDP}.") and not self._is_called(source, node)
                internal = "name" if member or symbols.is_internal(name) else ""
                reason = symbols.reason(name)
                self.migration.blockers.append(Blocked(source, node, reason, internal=internal))
        for source in self.migration.sources:
            for node in nodes(source):
                if self.migration.symbol(node) == kinds.OLD_OPTIMIZER_LOAD:
                    if node not in self.migration.claimed:
                        self.migration.blockers.append(
                            Blocked(source, node, "this reads a checkpoint as FSDP1 writes it")
                        )
            for item in bindings_of(source).imports():
                if fsdp1_name(canonical(item.full)) is not None:
                    self.migration.rewrite.unused(source, item.spelling, anyway=True)
        for node in self.migration.variables:
            if node not in self.migration.kept:
                self._drop_variable(node)

    def _is_called(self, source: Source, node: cst.CSTNode) -> bool:
        call = source.parent(node)
        return isinstance(call, cst.Call) and call.func is node

    def _drop_variable(self, node: cst.CSTNode) -> None:
        """A config variable that nothing reads any longer."""
        for source in self.migration.sources:
            if source.parent(node) is None:
                continue
            statement = statement_of(source, node)
            if isinstance(statement, cst.Assign | cst.AnnAssign) and statement.value is node:
                self.migration.delete_statement(source, statement)


def make_plan(program: Program, sources: list[Source]) -> Plan:
    """The migration of some files. Functions that nothing calls may be left as they are."""
    plan = _make_plan(program, sources, {})
    untouched = uncalled_functions.uncalled(program, plan.blockers)
    if not untouched:
        return plan
    other = _make_plan(program, sources, untouched)
    return plan if _touches(other, untouched) else other


def _touches(plan: Plan, functions: uncalled_functions.Functions) -> bool:
    """Whether a plan changes code in some functions, or is blocked by it."""
    return any(
        _inside(source, function, blocker.node)
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
    program: Program, sources: list[Source], untouched: uncalled_functions.Functions
) -> Plan:
    planner = Planner(program, sources, untouched)
    plan = Plan(group=f"migration of {sources[0].path}", sources=sources)
    too_large = planner.too_many() or planner.unfinished()
    if too_large is not None:
        plan.blockers = [too_large]
        return plan
    planner.run()
    migration = planner.migration
    if migration.blockers:
        plan.blockers = migration.blockers
        return plan
    migration.finish()
    try:
        fix = migration.rewrite.fix("Migrate to FSDP2", Safety.SAFE)
        fix = ambiguous_imports.place_imports(migration, fix)
    except ValueError:
        step = migration.steps[0]
        reason = "two of the rewrites here get into each other's way"
        plan.blockers = [Blocked(step.source, step.node, reason)]
        return plan
    plan.blockers = importing_files.check(migration, fix.edits) + parallel_settings.check(migration)
    plan.blockers += framework_configs.check(migration, fix.edits)
    plan.blockers += remaining_uses.check(migration, fix.edits)
    plan.blockers += ambiguous_imports.check_edits(migration, fix)
    if plan.blockers:
        return plan
    plan.steps = migration.steps
    unread_parameters.note(migration, fix.edits)
    plan.edits, plan.imports, plan.unused = fix.edits, fix.imports, fix.unused
    plan.notes = tuple(migration.notes.values())
    return plan

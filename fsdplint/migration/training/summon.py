"""`FSDP.summon_full_params`: blocks in which the parameters are whole.

FSDP2 has no such block. `unshard()` gathers the parameters of one module in its compute dtype, and
`reshard()` discards what the program writes to them. So there are these forms of rewrite:

    needless    the body only calls the model, which gathers its parameters itself
    gathered    the body reads or computes: `unshard()` of every module before it, `reshard()` after it
    one by one  under mixed precision, or for copies on the CPU: `full_tensor()` of each parameter
    written     loops that set each parameter: they write the sharded parameters
    replaced    other bodies: a context manager gives the modules whole parameters (`full_parameters`)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.fixes.no_sync import left_early
from fsdplint.fixes.summon import surround
from fsdplint.interpreter.values import ModuleValue, Value
from fsdplint.migration.analysis import external_wrapping
from fsdplint.migration.analysis.variables import fresh
from fsdplint.migration.blockers import Blocked, Reason
from fsdplint.migration.blockers.summon import (
    SUMMON_ARGUMENT_AT_RUN_TIME,
    SUMMON_ARGUMENTS,
    SUMMON_AS_VALUE,
    SUMMON_CALLS_IN_FULL_PRECISION,
    SUMMON_CALLS_PARTS_FIRST,
    SUMMON_GRADIENTS,
    SUMMON_IN_FULL_PRECISION,
    SUMMON_IN_FULL_PRECISION_ON_CPU,
    SUMMON_NOT_RECURSIVE,
    SUMMON_OF_EXPRESSION,
    SUMMON_PERHAPS_UNSHARDED,
    SUMMON_STATE,
    SUMMON_WRITES,
    SUMMON_WRITES_UNSEEN,
)
from fsdplint.migration.constructor.ignored_values import may_ignore
from fsdplint.migration.context import Migration, expression
from fsdplint.migration.facts import Precision
from fsdplint.migration.training import applied, full_parameters
from fsdplint.migration.training.chosen_precision import is_always_off, lowers
from fsdplint.migration.training.entered_blocks import Blocks, Contexts, plain_generator, yields
from fsdplint.migration.training.summon_body import SUMMON, Body
from fsdplint.migration.training.summon_calls import Calls
from fsdplint.migration.training.summon_loops import Loop, ParameterLoops
from fsdplint.migration.training.summon_values import context_helper
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.trace import Sharded, Wrapped

PARAMETERS = ("module", "recurse", "writeback", "rank0_only", "offload_to_cpu", "with_grads")
API = SUMMON
NEEDLESS = "Call the model without `summon_full_params`: the call gathers the parameters"
TITLE = "Gather the parameters with `unshard()`"
# The classes of Transformers without an encoder, whose `generate` calls the model itself.
CAUSAL = re.compile(r"transformers\.(.+\.)?\w+(ForCausalLM|LMHeadModel)")


@dataclass
class Summon:
    """One block, its arguments, and the form of its rewrite."""

    migration: Migration
    source: Source
    call: cst.Call
    block: cst.With
    item: cst.WithItem | None  # None if the call is not the head of the block
    model: cst.BaseExpression
    given: dict[str, cst.Arg]
    form: str = "gathered"
    entered: Blocks = field(default_factory=list)  # all blocks that enter the value
    needless: bool = False  # whether the body gathers what it needs itself
    loops: list[Loop] = field(default_factory=list)

    @property
    def options(self) -> dict[str, bool]:
        """The arguments, each of which is a literal unless the form is "replaced"."""
        given = {name: is_constant(arg.value, "True") for name, arg in self.given.items()}
        return full_parameters.DEFAULTS | given

    @property
    def calls(self) -> Calls:
        places = [(one.source, one.block) for one in self.entered]
        return Calls(self.migration, self.source, self.call, places)

    @property
    def blocks(self) -> list[cst.With]:
        return [one.block for one in self.entered]

    @property
    def is_value(self) -> bool:
        """Whether other code than the block that has the call as its head runs in the context."""
        return self.item is None or any(one.is_remote for one in self.entered)

    def _bodies(self) -> Iterator[Body]:
        for one in self.entered:
            yield Body(self.migration, one.source, one.block.body, one.model)

    def blocker(self, reason: Reason, node: cst.CSTNode | None = None) -> Exception:
        return Blocked(self.source, node or self.call, reason)

    # Deciding -----------------------------------------------------------------------------------

    def decide(self, precision: Precision) -> None:
        """Choose the form, before the rewrite of the body.

        Raises:
            Blocked: no form is faithful.
        """
        try:
            self._decide_by_body(precision)
        except Blocked:
            if not self._can_replace():
                raise
            self.form, self.loops = "replaced", []
        self.calls.note_damage(self.options)
        if not self.options["recurse"] and self.migration.wrapping_of(self.model) != "always":
            raise self.blocker(SUMMON_NOT_RECURSIVE())

    def _can_replace(self) -> bool:
        """Whether the modules can get whole parameters for the time of the blocks."""
        for body in self._bodies():
            if not full_parameters.fits(self.migration, body):
                return False
            if body.mentions("grad") and "with_grads" not in self.given:
                return False
            recurse = self.given.get("recurse")
            whole = recurse is None or not is_constant(recurse.value, "False")
            if body.computes() and self.calls.may_be_of_gathered(recurse=whole):
                return False
        return True

    def _decide_by_body(self, precision: Precision) -> None:
        if not isinstance(self.model, cst.Name | cst.Attribute):
            raise self.blocker(SUMMON_OF_EXPRESSION(), self.model)
        for name, arg in self.given.items():
            if not is_constant(arg.value, "True", "False"):
                raise self.blocker(SUMMON_ARGUMENT_AT_RUN_TIME(argument=name), arg)
        for body in self._bodies():
            self._choose(body, precision)
            if self.form != "gathered" and self.is_value:
                raise self.blocker(SUMMON_AS_VALUE())
        if self.item is None and not self.options["recurse"] and self._is_compiled():
            raise self.blocker(SUMMON_AS_VALUE())
        certain = self.migration.wrapping_of(self.model) == "always"
        if self.form != "gathered" and (not certain or may_ignore(self.migration)):
            raise self.blocker(SUMMON_PERHAPS_UNSHARDED())

    def _choose(self, body: Body, precision: Precision) -> None:
        if self.options["with_grads"] or body.mentions("grad"):
            raise self.blocker(SUMMON_GRADIENTS())
        if node := body.state():
            raise self.blocker(SUMMON_STATE(), node)
        written = body.first_write()
        if written is not None and self.options["writeback"] and not body.writes_other_objects():
            loops = body.loops.find(writing=True)
            if loops is None:
                raise self.blocker(
                    SUMMON_WRITES(),
                    written,
                )
            self.form, self.loops = "written", loops
            return
        if self.options["writeback"] and (node := body.unseen_call()):
            raise self.blocker(
                SUMMON_WRITES_UNSEEN(code=self.source.code(node)),
                node,
            )
        if self._choose_for_generator(body):
            return
        if self._only_calls_model(body):
            self.needless = True
            return
        if lowers(self.migration, precision) or self.options["offload_to_cpu"]:
            spared = written is None or body.writes_other_objects()
            loops = body.loops.find(writing=False) if spared else None
            if written is not None and len(loops or ()) > 1:
                loops = None  # a later loop may read what the first one writes
            computes = loops is None and body.computes() and not self.options["offload_to_cpu"]
            if computes and not self._as_in_training(body) and not self._only_generates(body):
                raise Blocked(
                    self.source,
                    self.call,
                    SUMMON_CALLS_IN_FULL_PRECISION(),
                )
            if loops is None and not computes:
                raise self.blocker(
                    SUMMON_IN_FULL_PRECISION_ON_CPU()
                    if self.options["offload_to_cpu"]
                    else SUMMON_IN_FULL_PRECISION()
                )
            if loops is not None:
                self.form, self.loops = "one by one", loops
                return
        calls = self.calls
        certain = calls.entered_before() or self._runs_whole_model(body)
        # A model of a library may call a part of it first in `generate`, such as its encoder.
        library = body.only_generates() and any(map(_library_class, self._values_of_model()))
        certain = certain or (not library and calls.begins_with_model())
        if body.computes() and not certain:
            raise self.blocker(SUMMON_CALLS_PARTS_FIRST())

    def _choose_for_generator(self, body: Body) -> bool:
        """Choose the form of a block that yields values to loops; False for other blocks.

        Raises:
            Blocked: a caller may leave its loop early on some ranks, or write what it gets.
        """
        if not yields(self.block) or plain_generator(self.source, self.block) is None:
            return False
        loops = None if self.options["writeback"] else body.loops.find(writing=False)
        if loops is None or not Contexts(self.migration).takes_all(self.source, self.block):
            raise self.blocker(SUMMON_AS_VALUE())
        self.form, self.loops = "one by one", loops
        return True

    def _only_calls_model(self, body: Body) -> bool:
        """Whether the body needs no gathered parameters: it only calls the wrapped model.

        A `with` that other code enters may hold more than the body.
        """
        if self.is_value or body.reads_parameters() or not body.computes():
            return False
        return self.calls.only_of_wrapper() and self.calls.without_gradients(only_generates=False)

    def _runs_whole_model(self, body: Body) -> bool:
        """Whether the body only generates with models of Transformers whose `generate` calls them.

        Models with an encoder call it first.
        """
        values = self._values_of_model()
        return body.only_generates() and bool(values) and all(map(_is_causal, values))

    def _values_of_model(self) -> Sequence[Value]:
        return list(self.migration.values(self.model))

    def _is_compiled(self) -> bool:
        values = self.migration.values(self.model)
        return any(isinstance(v, ModuleValue) and v.wrapper == "compile" for v in values)

    def _stays_a_context(self) -> bool:
        """Whether a context manager replaces the call, which is not the whole head of a block."""
        return self.item is None or (
            self._ends_with_code() and left_early(self.block.body) and len(self.block.items) > 1
        )

    def _ends_with_code(self) -> bool:
        """Whether lines follow the body."""
        return self.form == "gathered" and not self.needless

    def _as_in_training(self, body: Body) -> bool:
        """Whether the body only runs inference that may use the precision of the model's forward."""
        infers = self.calls.without_gradients(only_generates=body.only_generates())
        if not infers or not self.calls.under_autocast() or body.reads_parameters():
            return False
        self.calls.note_precision()
        return True

    def _only_generates(self, body: Body) -> bool:
        """Whether the body only generates or infers, which a user may let run in a lower precision."""
        generates = body.only_generates()
        if not (generates or self.calls.begins_with_model()) or body.reads_parameters():
            return False
        if not self.calls.without_gradients(only_generates=generates):
            return False
        self.calls.note_lower_precision(
            generates=generates, unsafe=not is_always_off(self.migration)
        )
        return True

    # Writing ------------------------------------------------------------------------------------

    def mark(self) -> None:
        """Record the form of the block, on which the rewrites in its body depend."""
        stays = self.form == "replaced" or len(self.block.items) > 1
        ends_with_code = self._ends_with_code() and left_early(self.block.body)
        if not stays and not ends_with_code and self.item:
            self.migration.blocks.unwrapped.add(self.block)
        if self.form == "gathered":
            self.migration.blocks.gathered.update(self.blocks)
        if self.form == "replaced":
            self.migration.blocks.replaced.update(self.blocks)
        if self.form != "written":
            self.migration.blocks.whole_parameters.update(self.blocks)

    def write(self, others: Sequence[Summon]) -> None:
        """Write the rewrite, given all blocks of the migration."""
        migration, source = self.migration, self.source
        if self.form == "replaced":
            options = options_in(migration, source, others)
            model = expression(migration, source, self.model)
            full_parameters.write(migration, source, self.call, model, self.texts(), options)
            return
        if self._stays_a_context() or self.item is None:
            self._write_context()
            return
        migration.own(source, self.item)
        migration.account_for(source, self.call.func)
        migration.forget(source, self.item)
        if self.needless:
            self._surround([], [])
            migration.step(source, self.call, NEEDLESS)
            return
        if self.form == "gathered":
            self._surround(self._for_each_module("unshard"), self._for_each_module("reshard"))
            migration.step(source, self.call, TITLE)
            return
        for loop in self.loops:
            self._say_names(loop)
            if self.form == "one by one":
                self._make_whole(loop)
            else:
                self._distribute(loop)
        self._surround(self._for_each_module("reshard"), [])
        title = "Read each parameter with `full_tensor()`"
        if self.form == "written":
            title = "Write each parameter where it is sharded"
        migration.step(source, self.call, title)

    def texts(self) -> dict[str, str]:
        """The texts of the arguments besides the model, by name."""
        found = {
            name: expression(self.migration, self.source, arg.value)
            for name, arg in self.given.items()
        }
        return found

    def _write_context(self) -> None:
        migration, source = self.migration, self.source
        migration.account_for(source, self.call.func)
        given = [expression(migration, source, self.model)]
        if not self.options["recurse"]:
            given.append("recurse=False")
        helper = context_helper(migration, source, self.call)
        migration.substitute(source, self.call, f"{helper}({', '.join(given)})")
        migration.step(source, self.call, TITLE)

    def _surround(self, before: list[str], after: list[str]) -> None:
        assert self.item is not None
        surround(self.migration.rewrite, self.source, self.block, self.item, before, after)

    def _for_each_module(self, method: str) -> list[str]:
        """The lines that call a method of every FSDPModule in the model."""
        text = expression(self.migration, self.source, self.model)
        if not self.options["recurse"] or self._single():
            return [f"{text}.{method}()"]
        name = self.migration.need(self.source, "torch.distributed.fsdp", "FSDPModule", self.block)
        one = fresh(self.source, self.block, "module", "fsdp_module")
        return [
            f"for {one} in {text}.modules():",
            f"\tif isinstance({one}, {name}):",
            f"\t\t{one}.{method}()",
        ]

    def _single(self) -> bool:
        """Whether the model is certainly one group."""
        if self.migration.wrapping_of(self.model) != "always":
            return False
        ids = {getattr(value, "id", "") for value in self.migration.values(self.model)}
        ids |= self.calls.modules()  # of all calls of a function
        found = False
        for trace in self.migration.program.traces:
            wrapped = {event.module: event for event in trace.of(Wrapped)}
            for module in ids & set(wrapped):
                found = True
                event = wrapped[module]
                parts = [part for part in trace.submodules(event.inner) if part != event.inner]
                unknown = any(not trace.modules[m].children_known for m in (event.inner, *parts))
                if event.units != () or unknown or any(part in wrapped for part in parts):
                    return False
        return found

    def _say_names(self, loop: Loop) -> None:
        if isinstance(loop.node, cst.Attribute):
            return
        over = loop.node.iter if isinstance(loop.node, cst.For) else loop.node.for_in.iter
        method = self.source.code(over)
        if method.endswith(".module.named_parameters()") and not self._single():
            self.migration.note(
                "names of `.module.named_parameters()` no longer contain `_fsdp_wrapped_module.`",
                self.source,
                over,
                detail="Rename what was saved under such names, such as an average.",
            )

    def _make_whole(self, loop: Loop) -> None:
        whole = ".full_tensor()" + (".cpu()" if self.options["offload_to_cpu"] else "")
        if not isinstance(loop.node, cst.For):
            body = ParameterLoops(self.migration, self.source, self.block.body, self.model)
            for use in filter(body.reads_values, body.uses(loop)):
                end = self.source.span(use)[1]
                self.migration.substitute_span(self.source, end, end, whole)
            return
        assert isinstance(loop.parameter, cst.Name)
        name = loop.parameter.value
        text = f"{name} = {name}{whole}"
        first = loop.node.body.body[0]
        self.migration.rewrite.insert_before(self.source, first, [text])

    def _distribute(self, loop: Loop) -> None:
        for arg in loop.copy_arguments:
            function = self.migration.need(
                self.source, "torch.distributed.tensor", "distribute_tensor", self.block
            )
            assert isinstance(loop.parameter, cst.Name)
            name = loop.parameter.value
            text = self.migration.text(self.source, arg.value)
            given = [text, f"{name}.device_mesh", f"{name}.placements", "src_data_rank=None"]
            self.migration.put_call(self.source, arg.value, function, given)


def options_in(
    migration: Migration, source: Source, blocks: Sequence[Summon]
) -> full_parameters.Options:
    """The options of all blocks of a file whose modules get whole parameters."""
    same = [one for one in blocks if one.form == "replaced" and one.source is source]
    given = tuple(one.texts() for one in same)
    return full_parameters.Options(given + applied.options_in(migration, source))


def _is_causal(value: Value) -> bool:
    """Whether a value is a model of Transformers that consists of a decoder."""
    return CAUSAL.fullmatch(_library_class(value)) is not None


def _library_class(value: Value) -> str:
    """The class of a library that a wrapped model has, or ""."""
    while isinstance(value, ModuleValue) and value.inner is not None:
        value = value.inner
    name = value.library_class if isinstance(value, ModuleValue) else None
    return name or ""


def collect(
    migration: Migration, source: Source, node: cst.CSTNode, precision: Precision
) -> Summon:
    """The block of a reference to `summon_full_params`, with the form of its rewrite.

    Raises:
        Blocked: the block has no faithful rewrite.
    """
    if not _sharded_here(migration):
        raise external_wrapping.wrapped_elsewhere(migration, source, node, API)
    call = source.parent(node)
    item = source.parent(call) if isinstance(call, cst.Call) and call.func is node else None
    if not isinstance(call, cst.Call) or item is None:
        raise Blocked(source, node, SUMMON_AS_VALUE())
    named, rest = arguments(call, PARAMETERS[:1])
    model = named.pop("module", None)
    blocks = Contexts(migration).of_call(source, call, call if model is None else model.value)
    if not blocks:
        raise Blocked(source, node, SUMMON_AS_VALUE())
    if rest or model is None or not set(named) <= set(full_parameters.DEFAULTS):
        raise Blocked(source, call, SUMMON_ARGUMENTS())
    head = item if isinstance(item, cst.WithItem) else None
    summon = Summon(
        migration, source, call, blocks[0].block, head, model.value, named, entered=blocks
    )
    summon.decide(precision)
    summon.mark()
    return summon


def _sharded_here(migration: Migration) -> bool:
    """Whether the program shards any model itself, with FSDP1 or FSDP2."""
    return bool(external_wrapping.constructors(migration)) or any(
        True
        for trace in migration.program.traces
        for kind in (Wrapped, Sharded)
        for _ in trace.of(kind)
    )

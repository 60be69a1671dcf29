"""The keywords of `fully_shard` that stand for a constructor's arguments, and the lines around
it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.fixes.syntax import library_name
from fsdplint.migration.analysis.variables import fresh
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import CAST_INPUTS_DIFFER_IN_DICT, OFFLOAD_UNKNOWN
from fsdplint.migration.constructor.strategy import KEY, conditional
from fsdplint.migration.constructor.wrapping_policy import Policy
from fsdplint.migration.context import Migration
from fsdplint.migration.text import WIDTH, call, dict_display, spread, statement, string_literal
from fsdplint.source.source import Source
from fsdplint.syntax.layout import line_indent, statement_of


@dataclass
class Keywords:
    """What `fully_shard` gets.

    Attributes:
        items: keyword and text, in the order in which they are written.
        spread: an expression that gives more of them (`**text`), or "".
        mapping: the name of the user's own dict that is spread, or "".
        before: lines that come before the loop and the root.
        sync: the condition under which rank 0's weights go to all ranks: "", "True" or a text.
        materialize: the device on which parameters on the meta device get memory, or "".
        buffers: the dtype that floating point buffers are cast to, or "".
    """

    migration: Migration
    source: Source
    at: cst.Call
    items: list[tuple[str, str]] = field(default_factory=list)
    spread: str = ""
    spreads_mesh: bool = False  # whether that gives a mesh
    kept: str = ""  # the condition under which parameters stay whole after the forward
    mapping: str = ""
    before: list[str] = field(default_factory=list)
    policy: Policy | None = None
    sync: str = ""
    buffers: str = ""
    buffers_as: str = ""  # the field of the policy that says whether buffers are cast, or ""
    buffers_to: str = ""  # to which dtype then, "" for that of the field
    materialize: str = ""
    offload: str = (
        ""  # when parameters are offloaded: "True", a condition, "?" for another variable
    )
    ignored: bool = False  # whether some parameters are not sharded
    ignored_modules: str = ""  # the modules whose parameters and buffers are left alone
    initialize: str = ""  # the function that gives parameters on the meta device their values
    in_group: bool = False  # whether the weights come from the first rank of a group
    in_two: bool = False  # whether the mesh may have two dimensions
    empty: bool = False  # whether other ranks may have no weights of their own
    strategy: str = ""  # the variable that holds the strategy, where there is one
    state: str = ""
    inner: bool = False  # whether the call wraps a part of a module that is wrapped itself
    own_casts: bool = False  # whether the policy says of itself if inner modules cast their inputs
    mapped_policy: bool = False  # whether the mapping has a policy of mixed precision
    spread_definition: bool = False
    _policy: str = ""  # the variable that holds the policy of mixed precision
    _mesh: str = ""
    _inner: list[str] | None = None
    _common: str = ""

    # Preparing --------------------------------------------------------------------------------

    def prepare(self, loop: bool, inner_casts: bool) -> None:
        """Decide what gets a variable of its own.

        loop: whether the keywords are used more than once. inner_casts: whether the inner modules
        may use the policy of the root.
        """
        items = dict(self.items)
        if self.in_group and not is_simple(items["mesh"]):
            items["mesh"] = self.variable("mesh", items["mesh"])
            self.items = list(items.items())
        self._mesh = items.get("mesh", "")
        if self.buffers_as and self.mapping:
            self._policy = f"{self.mapping}[{string_literal(self.source, 'mp_policy')}]"
        elif self.buffers_as and "mp_policy" in items:
            policy = items["mp_policy"]
            if not is_simple(policy):
                policy = self.variable("mp_policy", policy)
                items["mp_policy"] = policy
                self.items = list(items.items())
            self._policy = policy
        if not loop:
            own = self.own_casts and not self.inner
            if "mp_policy" in items and (own or (self.inner and not inner_casts)):
                casts = self._casts_of_one(items["mp_policy"])
                self.items = [(key, casts if key == "mp_policy" else x) for key, x in self.items]
            self._single()
            return
        if self.mapping and self.own_casts and self.mapped_policy:
            reason = CAST_INPUTS_DIFFER_IN_DICT()
            raise Blocked(self.source, self.at, reason)
        if self.mapping:
            if not inner_casts and self.mapped_policy:
                self._separate_mapped_policy()
            return
        if not inner_casts and "mp_policy" in dict(self.items):
            self._separate_policy()
            return
        if self.spread or self.kept or len(self.items) >= 2:
            self._collect(self.items)
            self.items = []
        elif self.items:
            key, value = self.items[0]
            if not is_simple(value):
                self.items = [(key, self.variable(key, value))]

    def _single(self) -> None:
        """What is chosen at run time, for a call that shards nothing but the root."""
        if not self.kept:
            return
        statement = statement_of(self.source, self.at)
        if getattr(statement, "value", None) is self.at:
            self._collect([])
        else:
            self.spread, self.kept = conditional(self.source, self.kept), ""

    def _collect(self, items: list[tuple[str, str]]) -> None:
        """A variable for keywords that are used more than once, or chosen at run time."""
        name = fresh(self.source, self.at, "fsdp_kwargs", "shard_kwargs")
        short = f"{name} = {conditional(self.source, self.kept)}"
        room = WIDTH - len(line_indent(self.source, self.source.span(self.at)[0]).expandtabs(4))
        if self.kept and not items and not self.spread and len(short) <= room:
            self.before.append(short)
        else:
            if items or not self.spread:
                self.before += dict_display(self.source, f"{name} = ", items, self.spread)
            else:
                self.before.append(f"{name} = {self.spread}")
            if self.kept:
                self.before.append(f"if {self.kept}:")
                self.before.append(f"\t{name}[{string_literal(self.source, KEY)}] = False")
        self._common, self.spread, self.kept = name, "", ""

    def _separate_policy(self) -> None:
        """The inner modules get the policy without the casts of their inputs."""
        items = dict(self.items)
        policy = items.pop("mp_policy")
        if not is_simple(policy):
            policy = self.variable("mp_policy", policy)
        inner = fresh(self.source, self.at, "inner_policy", "inner_mp_policy")
        rest = list(items.items())
        if self.spread or self.kept or len(rest) >= 2:
            self._collect(rest)
            rest = []
        elif rest and not is_simple(rest[0][1]):
            rest = [(rest[0][0], self.variable(*rest[0]))]
        if self.own_casts:
            inner, policy = policy, self._root_policy(policy)
        else:
            replace = self._replace()
            self.before.append("# Only the root casts its inputs.")
            self.before.append(f"{inner} = {replace}({policy}, cast_forward_inputs=False)")
        base = self._spreads() + [f"{key}={value}" for key, value in rest]
        self.items = [*rest, ("mp_policy", policy)]
        self._inner = [*base, f"mp_policy={inner}"]

    def _replace(self) -> str:
        return library_name(self.migration.rewrite, self.source, "dataclasses.replace", self.at)

    def _casts_of_one(self, policy: str) -> str:
        """The policy of a module that is sharded by hand; that of a part says it of itself, or it
        must not cast.
        """
        if not self.inner:
            return self._casting(policy)
        return (
            policy if self.own_casts else f"{self._replace()}({policy}, cast_forward_inputs=False)"
        )

    def _casting(self, policy: str) -> str:
        return f"{self._replace()}({policy}, cast_forward_inputs=True)"

    def _root_policy(self, policy: str) -> str:
        self.before.append("# The root casts its inputs in any case.")
        return self.variable("root_policy", self._casting(policy))

    def _separate_mapped_policy(self) -> None:
        replace = self._replace()
        key = string_literal(self.source, "mp_policy")
        name = fresh(self.source, self.at, f"inner_{self.mapping}", "inner_kwargs")
        policy = f"{replace}({self.mapping}[{key}], cast_forward_inputs=False)"
        self.before.append("# Only the root casts its inputs.")
        self.before += dict_display(
            self.source, f"{name} = ", [("mp_policy", policy)], self.mapping
        )
        self._inner = [f"**{name}", *(f"{key}={value}" for key, value in self.items)]

    def variable(self, wanted: str, value: str) -> str:
        name = fresh(self.source, self.at, wanted, f"fsdp_{wanted}")
        self.before.append(statement(self.source, self.at, f"{name} = {value}"))
        return name

    # The texts --------------------------------------------------------------------------------

    def _spreads(self) -> list[str]:
        found = [x for x in (self.mapping, self._common) if x]
        if self.spread:
            found.append(self.spread)
        return [spread(text) for text in found]

    def arguments(self, inner: bool) -> list[str]:
        """The arguments behind the module; `inner` for a submodule."""
        if inner and self._inner is not None:
            return self._inner
        return [*self._spreads(), *(f"{key}={value}" for key, value in self.items)]

    def before_sharding(self, model: str) -> list[str]:
        if not self.sync:
            return []
        if self.in_group or self.ignored:
            self.state = fresh(self.source, self.at, "full_parameters", "whole_parameters")
            return [f"{self.state} = dict({model}.named_parameters())"]
        self.state = fresh(self.source, self.at, "full_state", "rank0_state")
        return [f"{self.state} = {model}.state_dict()"]

    def after(self, model: str) -> list[str]:
        lines: list[str] = []
        floating = "if buffer.is_floating_point():"
        if self.ignored_modules and (self.buffers or self.buffers_as):
            modules, own = self.ignored_modules, fresh(self.source, self.at, "ignored_buffers")
            one = "part" if re.search(r"\bmodule\b", modules) else "module"
            lines.append(f"{own} = {{b for {one} in {modules} for b in {one}.buffers()}}")
            floating = f"if buffer.is_floating_point() and buffer not in {own}:"
        if self.buffers:
            lines += [
                f"for buffer in {model}.buffers():",
                f"\t{floating}",
                f"\t\tbuffer.data = buffer.data.to({self.buffers})",
            ]
        if self.buffers_as and self._policy:
            dtype = self.buffers_to or f"{self._policy}.{self.buffers_as}"
            lines += [
                f"if {self._policy}.{self.buffers_as} is not None:",
                f"\tfor buffer in {model}.buffers():",
                f"\t\t{floating}",
                f"\t\t\tbuffer.data = buffer.data.to({dtype})",
            ]
        if self.sync and self.offload:
            self.migration.note(
                "persistent buffers of an offloaded model get in the way of rank 0's weights",
                self.source,
                self.at,
                detail="They are on the device and the parameters on the CPU: set_model_state_dict "
                "stops with `Multiple devices found`. Move such buffers to the CPU for this call.",
            )
        if self.sync:
            apart = self.in_group or self.ignored
            first = self._broadcast_in_group(model) if apart else self._broadcast(model)
            lines = [*first, *lines]
        if self.materialize:
            lines = [*self._materialized(model), *lines]
        return lines

    def _materialized(self, model: str) -> list[str]:
        """Memory for what is on the meta device; what is offloaded has to get it on the CPU."""
        device, test = self.materialize, f"if any(p.is_meta for p in {model}.parameters()):"
        if not self.offload:
            return [test, f"\t{model}.to_empty(device={device})"]
        if self.offload == "?":
            raise Blocked(self.source, self.at, OFFLOAD_UNKNOWN())
        cpu = string_literal(self.source, "cpu")
        where = cpu if self.offload == "True" else f"{cpu} if {self.offload} else {device}"
        return [
            test,
            f"\t{model}.to_empty(device={where})",
            f"\tfor buffer in {model}.buffers():",
            f"\t\tbuffer.data = buffer.data.to({device})",
        ]

    def _broadcast_in_group(self, model: str) -> list[str]:
        """Every group of ranks starts from the weights of its first rank."""
        need = self.migration.need
        distribute = need(self.source, "torch.distributed.tensor", "distribute_tensor", self.at)
        no_grad = self.migration.torch(self.source, self.at) + ".no_grad()"
        empty_like = self.migration.torch(self.source, self.at) + ".empty_like"
        broadcast = self.migration.dist(self.source, self.at, "broadcast")
        state = self.state or "full_parameters"
        mesh = self._mesh if self.in_group else "parameter.device_mesh"
        lines = [
            f"with {no_grad}:",
            f"\tfor name, parameter in {model}.named_parameters():",
            *self._only_sharded(),
            f"\t\tfull = {state}[name].to({mesh}.device_type)",
            f"\t\tparameter.copy_({distribute}(full, {mesh}, parameter.placements))",
            f"for buffer in {model}.buffers():",
            f"\t{broadcast}(buffer, group={mesh}.get_group(), group_src=0)",
        ]
        if not self.in_group:
            lines[-1] = f"\t{broadcast}(buffer, src=0)"
        elif self.in_two:
            lines[-1:] = [
                f"\tfor group in {mesh}.get_all_groups():",
                f"\t\t{broadcast}(buffer, group=group, group_src=0)",
            ]
        if self.empty:
            full = next(number for number, line in enumerate(lines) if "full = " in line)
            lines[full : full + 1] = [
                f"\t\tfull = {state}[name]",
                "\t\tif full.is_meta:",
                f"\t\t\tfull = {empty_like}(full, device={mesh}.device_type)",
                f"\t\tfull = full.to({mesh}.device_type)",
            ]
        if self.sync != "True":
            lines = [f"if {self.sync}:", *("\t" + line for line in lines)]
        comment = "# All ranks of a group start from its first rank's weights and buffers."
        if not self.in_group:
            comment = "# All ranks start from rank 0's weights and buffers."
        return [comment, *lines, f"del {state}"]

    def _only_sharded(self) -> list[str]:
        """Lines that leave out parameters that are ignored."""
        if not self.ignored:
            return []
        tensor = self.migration.need(self.source, "torch.distributed.tensor", "DTensor", self.at)
        return [f"\t\tif not isinstance(parameter, {tensor}):", "\t\t\tcontinue"]

    def _broadcast(self, model: str) -> list[str]:
        need = self.migration.need
        module = "torch.distributed.checkpoint.state_dict"
        setter = need(self.source, module, "set_model_state_dict", self.at)
        options = need(self.source, module, "StateDictOptions", self.at)
        broadcast = self.migration.dist(self.source, self.at, "broadcast")
        state = self.state or "full_state"
        lines: list[str] = []
        indent = line_indent(self.source, self.source.span(self.at)[0])
        if self.sync != "True":
            indent += self.source.tree.default_indent
        lines += [
            call(
                self.source,
                indent,
                setter,
                [
                    model,
                    state,
                    f"options={options}(full_state_dict=True, broadcast_from_rank0=True)",
                ],
            ),
            f"for buffer in {model}.buffers():",
            f"\t{broadcast}(buffer, src=0)",
        ]
        if self.sync != "True":
            lines = [f"if {self.sync}:", *("\t" + x.replace("\n", "\n\t") for x in lines)]
        return ["# All ranks start from rank 0's weights and buffers.", *lines, f"del {state}"]


def is_simple(text: str) -> bool:
    return bool(re.fullmatch(r"[\w.]+", text))

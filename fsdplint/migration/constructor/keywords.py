"""The keywords of `fully_shard` for one constructor call, and the lines around the new call."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields

import libcst as cst

from fsdplint.edits.quotes import quote_of, string_literal
from fsdplint.fixes.syntax import library_name
from fsdplint.interpreter.values import Value
from fsdplint.migration.analysis.variables import fresh
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import CAST_INPUTS_DIFFER_IN_DICT
from fsdplint.migration.constructor import batch_norms, forward_methods
from fsdplint.migration.constructor.module_lists import members_of
from fsdplint.migration.constructor.policy import Policy
from fsdplint.migration.constructor.starting_weights import StartingWeights
from fsdplint.migration.constructor.strategy import KEY, conditional
from fsdplint.migration.text import WIDTH, dict_display, spread_text, statement
from fsdplint.source.source import Source
from fsdplint.syntax.layout import line_indent, statement_of
from fsdplint.trace.torch_versions import ROOT_RESHARDED_SINCE

# What a dict of arguments writes itself, and what belongs to the call.
_OF_THE_CALL = {
    "migration", "source", "at", "items", "spread", "no_reshard_if", "mapping", "mapped_keys",
}  # fmt: skip


@dataclass
class Keywords(StartingWeights):
    """The keywords of `fully_shard`, and what its lines depend on.

    Attributes:
        items: keyword and text, in the order in which they are written.
        spread: an expression that gives more of them (`**text`), or "".
        spreads_mesh: whether that expression, or `mapping`, gives a mesh.
        no_reshard_if: the condition under which parameters stay gathered after the forward, or "".
        mapping: the name of the user's dict that the call spreads, or "".
        mapped_keys: the keys of that dict; None if some are unknown.
        setup: lines before the loop and the root.
        buffers: the dtype of the casts of floating point buffers, or "".
        buffers_if: the condition of these casts, or "".
        buffers_as: the field of the policy that decides whether buffers are cast, or "".
        buffers_to: the dtype of these casts, "" for the dtype in that field. `{policy}` stands for
            the policy.
        ignored_modules: the text of the modules whose parameters are not sharded, or "".
        ignored_parameters: the text of a set of parameters that are not sharded, or "".
        ignored_values: the values of these modules, or of the ignored parameters, in the runs.
        leaves_out: whether the policy may pick some of these modules, or modules whose parameters
            are all ignored, with which FSDP1 does nothing.
        norms: whether batch norms have a policy of mixed precision of their own.
        norms_if: the condition under which they have one, or "".
        reshards_root: whether the root may not stay gathered after a forward.
        initialize: the function that gives parameters on the meta device their values, or "".
        syncs_each_module: whether this function also gives all ranks the values of rank 0.
        strategy: the variable that holds the strategy, or "".
        is_part: whether the call wraps a part of a module that is wrapped itself.
        own_casts: whether each policy of mixed precision sets if its module casts its inputs.
        mapped_policy: whether the mapping has a policy of mixed precision.
        policy_may_be_default: whether the program may have no mixed precision.
    """

    items: list[tuple[str, str]] = field(default_factory=list)
    spread: str = ""
    spreads_mesh: bool = False
    no_reshard_if: str = ""
    mapping: str = ""
    mapped_keys: set[str] | None = None
    setup: list[str] = field(default_factory=list)
    policy: Policy | None = None
    buffers: str = ""
    buffers_if: str = ""
    buffers_as: str = ""
    buffers_to: str = ""
    ignored_modules: str = ""
    ignored_parameters: str = ""
    ignored_values: list[Value] = field(default_factory=list)
    leaves_out: bool = False
    norms: bool = False
    norms_if: str = ""
    reshards_root: bool = False
    initialize: str = ""
    syncs_each_module: bool = False
    strategy: str = ""
    is_part: bool = False
    own_casts: bool = False
    mapped_policy: bool = False
    policy_may_be_default: bool = False
    _policy: str = ""  # the variable that holds the policy of mixed precision
    _inner: list[str] | None = None
    _norms: list[str] = field(default_factory=list)
    _common: str = ""
    _common_keys: set[str] | None = None

    def merge(self, other: Keywords) -> None:
        """Take over what one item of a dict of arguments says besides the text of its keyword."""
        for one in fields(self):
            if one.name in _OF_THE_CALL or one.name.startswith("_"):
                continue
            own, new = getattr(self, one.name), getattr(other, one.name)
            setattr(self, one.name, own + new if isinstance(own, list) else own or new)

    def norms_fit(self) -> bool:
        """Whether the new code can shard batch norms by themselves."""
        policy = self.policy
        if policy is None or policy.units is not None:
            return False
        if self.mapping or self.has_ignored or self.own_casts:
            return False
        if self.initialize and (policy.helper or policy.guard):
            return False
        return not policy.helper or policy.counts_units

    def may_stay_gathered(self) -> bool:
        """Whether the strategy may keep the parameters of the model gathered after a forward."""
        if self.no_reshard_if or self.spread or KEY in dict(self.items):
            return True
        if self.policy is not None and KEY in dict(self.policy.unit):
            return True
        return bool(self.mapping) and (self.mapped_keys is None or KEY in self.mapped_keys)

    # Preparing --------------------------------------------------------------------------------

    def prepare(self, loop: bool, inner_casts: bool) -> None:
        """Give variables to keywords that the new code uses more than once.

        loop: whether a loop shards submodules with the same keywords.
        inner_casts: whether the submodules may use the policy of the root.
        """
        if self.no_reshard_if and not self.mapping and self._default_has_name():
            self.items.append((KEY, f"False if {self.no_reshard_if} else None"))
            self.no_reshard_if = ""
        items = dict(self.items)
        if self.in_group and "mesh" in items and not is_simple(items["mesh"]):
            items["mesh"] = self.variable("mesh", items["mesh"])
            self.items = list(items.items())
        self.mesh = items.get("mesh", self._mapped("mesh") if self.mapping else "")
        if self.buffers_as and self.mapping:
            self._policy = self._mapped("mp_policy")
        elif self.buffers_as and "mp_policy" in items:
            policy = items["mp_policy"]
            if not is_simple(policy):
                policy = self.variable("mp_policy", policy)
                items["mp_policy"] = policy
                self.items = list(items.items())
            self._policy = policy
        if not loop:
            own = self.own_casts and not self.is_part
            if "mp_policy" in items and (own or (self.is_part and not inner_casts)):
                policy = self._policy_of_one(items["mp_policy"])
                self.items = [(key, policy if key == "mp_policy" else x) for key, x in self.items]
            self._write_condition()
            return
        if self.mapping and self.own_casts and self.mapped_policy:
            raise Blocked(self.source, self.at, CAST_INPUTS_DIFFER_IN_DICT())
        if self.mapping:
            if not inner_casts and self.mapped_policy:
                self._separate_mapped_policy()
            return
        if (not inner_casts or self.norms) and "mp_policy" in dict(self.items):
            self._separate_policy(inner_casts)
            return
        if self.spread or self.no_reshard_if or len(self.items) >= 2:
            self._collect(self.items)
            self.items = []
        elif self.items:
            key, value = self.items[0]
            if not is_simple(value):
                self.items = [(key, self.variable(key, value))]

    def _mapped(self, key: str) -> str:
        """The text of an item of the user's dict."""
        return f"{self.mapping}[{string_literal(self.source, key)}]"

    def _default_has_name(self) -> bool:
        """Whether `fully_shard` takes `reshard_after_forward=None`, its default, as an argument."""
        target = self.migration.program.options.target
        return target is not None and target.has(ROOT_RESHARDED_SINCE)

    def _write_condition(self) -> None:
        """Write the strategy that is chosen at run time, for a call that shards the root only."""
        if not self.no_reshard_if:
            return
        statement = statement_of(self.source, self.at)
        if getattr(statement, "value", None) is self.at:
            self._collect([])
        else:
            self.spread, self.no_reshard_if = conditional(self.source, self.no_reshard_if), ""

    def _collect(self, items: list[tuple[str, str]]) -> None:
        """Assign keywords to a dict, since they are used more than once or chosen at run time."""
        name = fresh(self.source, self.at, "fsdp_kwargs", "shard_kwargs")
        keys = {*dict(items), *((KEY,) if self.no_reshard_if else ())}
        self._common_keys = None if self.spread else keys
        short = f"{name} = {conditional(self.source, self.no_reshard_if)}"
        room = WIDTH - len(line_indent(self.source, self.source.span(self.at)[0]).expandtabs(4))
        if self.no_reshard_if and not items and not self.spread and len(short) <= room:
            self.setup.append(short)
        else:
            if items or not self.spread:
                self.setup += dict_display(self.source, f"{name} = ", items, self.spread)
            else:
                self.setup.append(statement(self.source, self.at, f"{name} = {self.spread}"))
            if self.no_reshard_if:
                self.setup.append(f"if {self.no_reshard_if}:")
                self.setup.append(f"\t{name}[{string_literal(self.source, KEY)}] = False")
        self._common, self.spread, self.no_reshard_if = name, "", ""

    def _separate_policy(self, inner_casts: bool) -> None:
        """Give the inner modules a policy that does not cast their inputs, if they may not, and
        batch norms one that computes in float32."""
        items = dict(self.items)
        policy = items.pop("mp_policy")
        if not is_simple(policy):
            policy = self.variable("mp_policy", policy)
        if self.policy_may_be_default:
            self.norms_if = f"{policy}.param_dtype is not None"
        rest = list(items.items())
        if self.spread or self.no_reshard_if or len(rest) >= 2:
            self._collect(rest)
            rest = []
        elif rest and not is_simple(rest[0][1]):
            rest = [(rest[0][0], self.variable(*rest[0]))]
        base = self._spreads() + [f"{key}={value}" for key, value in rest]
        if self.norms:
            self._norms = [*base, f"mp_policy={self._policy_of_norms(policy)}"]
        self.items = [*rest, ("mp_policy", policy)]
        if inner_casts:
            return
        inner = fresh(self.source, self.at, "inner_policy", "inner_mp_policy")
        if self.own_casts:
            inner, policy = policy, self._root_policy(policy)
        else:
            self.setup.append("# Only the root casts its inputs.")
            self.setup.append(f"{inner} = {self._with_casts(policy, False)}")
        self.items = [*rest, ("mp_policy", policy)]
        self._inner = [*base, f"mp_policy={inner}"]

    def _policy_of_norms(self, policy: str) -> str:
        """The variable with the policy of batch norms, for the policy of the other modules."""
        need = self.migration.need
        name = need(self.source, "torch.distributed.fsdp", "MixedPrecisionPolicy", self.at)
        float32 = self.migration.torch(self.source, self.at) + ".float32"
        self.setup.append("# Batch norms compute in float32.")
        value = f"{name}(param_dtype={float32}, output_dtype={policy}.param_dtype)"
        return self.variable("norm_policy", value)

    def _replace(self) -> str:
        return library_name(self.migration.rewrite, self.source, "dataclasses.replace", self.at)

    def _policy_of_one(self, policy: str) -> str:
        """The policy of one module: the root casts its inputs, a part only if its policy does."""
        if not self.is_part:
            return self._with_casts(policy, True)
        return policy if self.own_casts else self._with_casts(policy, False)

    def _with_casts(self, policy: str, casts: bool) -> str:
        return f"{self._replace()}({policy}, cast_forward_inputs={casts})"

    def _root_policy(self, policy: str) -> str:
        self.setup.append("# The root casts its inputs in any case.")
        return self.variable("root_policy", self._with_casts(policy, True))

    def _separate_mapped_policy(self) -> None:
        """Give the inner modules a copy of the user's dict whose policy does not cast inputs."""
        key = string_literal(self.source, "mp_policy")
        name = fresh(self.source, self.at, f"inner_{self.mapping}", "inner_kwargs")
        policy = self._with_casts(f"{self.mapping}[{key}]", False)
        self.setup.append("# Only the root casts its inputs.")
        self.setup += dict_display(self.source, f"{name} = ", [("mp_policy", policy)], self.mapping)
        self._inner = [f"**{name}", *(f"{key}={value}" for key, value in self.items)]

    def variable(self, wanted: str, value: str) -> str:
        """Assign a text to a variable before the call; returns the variable's name."""
        name = fresh(self.source, self.at, wanted, f"fsdp_{wanted}")
        self.setup.append(statement(self.source, self.at, f"{name} = {as_value(value)}"))
        return name

    # The texts --------------------------------------------------------------------------------

    def _spreads(self) -> list[str]:
        found = [x for x in (self.mapping, self._common) if x]
        if self.spread:
            found.append(self.spread)
        return [spread_text(text) for text in found]

    def arguments(self, inner: bool) -> list[str]:
        """The arguments after the module; `inner`: of a submodule."""
        given = [*self._spreads(), *(f"{key}={value}" for key, value in self.items)]
        if inner:
            return self._with_own(self.common_arguments())
        return [*given, f"{KEY}=True"] if self.reshards_root else given

    def common_arguments(self) -> list[str]:
        """The arguments of all submodules, without those that the policy gives one alone."""
        if self._inner is not None:
            return self._inner
        return [*self._spreads(), *(f"{key}={value}" for key, value in self.items)]

    def norm_arguments(self) -> list[str]:
        """The arguments of a batch norm."""
        return self._norms

    def _with_own(self, given: list[str]) -> list[str]:
        """The arguments of a submodule, with those that the policy gives it alone."""
        own = self.policy.unit if self.policy is not None else ()
        if not own:
            return given
        quote = quote_of(self.source)
        items = [f"{quote}{key}{quote}: {value}" for key, value in own]
        texts = [f"{key}={value}" for key, value in own]
        if self.policy is not None and self.policy.gives_arguments:
            items = texts = [f"**{unit_arguments(self.source, self.at)}"]
        names = {key for key, _ in own}
        result, replaced = [], False
        for text in given:
            key = text.partition("=")[0]
            if text.startswith("**"):
                keys = self._keys_of(text.removeprefix("**"))
                if not replaced and (keys is None or keys & names):
                    text, replaced = f"**{{{', '.join([text, *items])}}}", True
            elif key in names and own[0][0] == key and texts == items:
                value = text.partition("=")[2]
                text = f"**{{{quote}{key}{quote}: {value}, {items[0]}}}"
                replaced = True
            elif key in names:
                continue
            result.append(text)
        return result if replaced else [*result, *texts]

    def _keys_of(self, name: str) -> set[str] | None:
        """The keys of a dict that the call spreads; None if some are unknown."""
        if name == self.mapping:
            return self.mapped_keys
        return self._common_keys if name == self._common else None

    def after(self, model: str) -> list[str]:
        """Lines after the model is sharded: memory, weights and casts of buffers."""
        lines: list[str] = []
        buffer = self._buffer
        floating = f"if {buffer}.is_floating_point():"
        if self.ignored_modules and (self.buffers or self.buffers_as):
            modules = self.ignored_modules
            buffers = fresh(self.source, self.at, "ignored_buffers")
            lines.append(f"{buffers} = {members_of(modules, 'buffers')}")
            floating = f"if {buffer}.is_floating_point() and {buffer} not in {buffers}:"
        if self.buffers:
            casts = self._buffer_casts(model, floating, self.buffers)
            lines += [f"if {self.buffers_if}:"] if self.buffers_if else []
            lines += [f"\t{line}" for line in casts] if self.buffers_if else casts
        if self.buffers_as and self._policy:
            dtype = self.buffers_to.format(policy=self._policy)
            dtype = dtype or f"{self._policy}.{self.buffers_as}"
            chosen = []
            if not is_simple(dtype):
                name = fresh(self.source, self.at, "dtype_of_buffers")
                chosen, dtype = [f"{name} = {dtype}"], name
            casts = [*chosen, *self._buffer_casts(model, floating, dtype)]
            lines.append(f"if {self._policy}.{self.buffers_as} is not None:")
            lines += [f"\t{line}" for line in casts]
        lines = [*self.lines_of_weights(model), *lines]
        return [*lines, *forward_methods.lines(self.migration, self.source, self.at, model)]

    @property
    def _buffer(self) -> str:
        """The variable of a loop over buffers, which the program does not use there."""
        return fresh(self.source, self.at, "buffer", "fsdp_buffer")

    def _buffer_casts(self, model: str, test: str, dtype: str) -> list[str]:
        """Lines that cast the buffers of a model, except those of batch norms."""
        buffer = self._buffer
        cast = [f"\t{test}", f"\t\t{buffer}.data = {buffer}.data.to({dtype})"]
        if not self.norms:
            return [f"for {buffer} in {model}.buffers():", *cast]
        part = fresh(self.source, self.at, "module", "part")
        klass = batch_norms.class_text(self.migration, self.source, self.at)
        return [
            f"for {part} in {model}.modules():",
            f"\tif {self._without_policy()}not isinstance({part}, {klass}):",
            f"\t\tfor {buffer} in {part}.buffers(recurse=False):",
            *(f"\t\t{line}" for line in cast),
        ]

    def _without_policy(self) -> str:
        """The test whether there is no wrapping policy, as an alternative; "" if there always is one."""
        guard = self.policy.guard if self.policy is not None else ""
        if not guard:
            return ""
        name = guard.removesuffix(" is not None")
        return f"{name} is None or " if name.isidentifier() else f"not ({guard}) or "


def unit_arguments(source: Source, at: cst.CSTNode) -> str:
    """The variable that holds the arguments which a policy gives a unit."""
    return fresh(source, at, "arguments", "unit_arguments")


def as_value(text: str) -> str:
    """The text of an argument as the value of an assignment: its lines are indented once less."""
    first, *rest = text.split("\n")
    if rest and all(line.startswith("\t") for line in rest):
        return "\n".join([first, *(line.removeprefix("\t") for line in rest)])
    return text


def is_simple(text: str) -> bool:
    """Whether a text is a name or a number."""
    return bool(re.fullmatch(r"[\w.]+", text))

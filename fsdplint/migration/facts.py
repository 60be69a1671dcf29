"""Facts that the passes of a migration find, grouped by the pass that owns them."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from fsdplint.migration.analysis.conditional_imports import Choice
from fsdplint.migration.constructor.policy import Policy
from fsdplint.migration.state_dicts.kinds import Config
from fsdplint.source.source import Source


@dataclass
class Precision:
    """The mixed precision of a migration's models.

    Attributes:
        buffers: the `buffer_dtype` arguments that are not None, by call.
        lowering: the calls whose `param_dtype` certainly is a dtype, and not None.
        same: the fields of the new policy that are written like this one (or neither is given), by
            call.
        casts_inner: whether inner modules also cast their inputs, as in FSDP2.
        own_casts: whether the policies differ in `casts_inner`, so that each one states its own.
        casts_none: whether no module casts its inputs, the root included.
        lowers: whether some policy has a `param_dtype`.
    """

    buffers: dict[cst.Call, cst.BaseExpression] = field(default_factory=dict)
    lowering: set[cst.Call] = field(default_factory=set)
    equal_fields: dict[cst.Call, tuple[str, ...]] = field(default_factory=dict)
    casts_inner: bool = True
    own_casts: bool = False
    casts_none: bool = False
    lowers: bool = False
    calls: list[cst.Call] = field(default_factory=list)


@dataclass
class ConditionalImports:
    """Names that are FSDP1's in some configurations only (`analysis.ambiguous_imports`).

    Attributes:
        choices: such names, by file.
        other_arm: the uses of these names that certainly refer to the other library.
    """

    choices: dict[Source, list[Choice]] = field(default_factory=dict)
    other_arm: list[tuple[Choice, cst.CSTNode]] = field(default_factory=list)


@dataclass
class Policies:
    """Wrapping policies (`constructor.policy`).

    Attributes:
        rewritten: the policies that were rewritten where they are created, by node.
        calls: the calls of methods that return policies.
        read_elsewhere: policies that code besides the constructors reads, and where.
        all_stay: whether all policies stay, because an unseen class may give one.
        shared: uses of policies that belong to another library in some configurations.
        shared_names: the names of those policies, by path.
        keep_ties: the constructor calls whose helper leaves modules that share a weight in the root.
    """

    rewritten: dict[cst.CSTNode, Policy] = field(default_factory=dict)
    calls: set[cst.CSTNode] = field(default_factory=set)
    read_elsewhere: dict[cst.CSTNode, tuple[Source, cst.CSTNode]] = field(default_factory=dict)
    all_stay: bool = False
    shared: set[cst.CSTNode] = field(default_factory=set)
    shared_names: set[tuple[str, str]] = field(default_factory=set)
    keep_ties: set[cst.CSTNode] = field(default_factory=set)


@dataclass
class Blocks:
    """Blocks and functions of training code (`training`).

    Attributes:
        unwrapped: `with` blocks whose body stays and whose head goes.
        enabling: calls of `wrap`, and the calls of `enable_wrap` that give them arguments.
        gathered: blocks in which every module is unsharded.
        whole_parameters: blocks in which parameters are unsharded.
        replaced: those of them in which the modules have whole parameters in full precision.
        local_shard_functions: functions and expressions that use `to_local()` after the rewrite.
        applied: calls of `apply` that get a block with whole parameters.
    """

    unwrapped: set[cst.CSTNode] = field(default_factory=set)
    enabling: dict[cst.Call, list[cst.Call]] = field(default_factory=dict)
    gathered: set[cst.CSTNode] = field(default_factory=set)
    whole_parameters: set[cst.CSTNode] = field(default_factory=set)
    replaced: set[cst.CSTNode] = field(default_factory=set)
    local_shard_functions: set[cst.CSTNode] = field(default_factory=set)
    applied: list[tuple[Source, cst.Call]] = field(default_factory=list)


@dataclass
class ForwardMethods:
    """Methods of wrapped models that run outside of their forward.

    Attributes:
        by_call: the methods to register after a constructor call, and whether all models of the call
            certainly have them.
        uses: the code that calls them, and the constructor calls of its model.
        plain_uses: the code that calls them on modules with whole parameters.
        registered: the constructor calls whose rewrite registers them.
    """

    by_call: dict[cst.Call, dict[str, bool]] = field(default_factory=dict)
    uses: list[tuple[Source, cst.Attribute, list[cst.Call]]] = field(default_factory=list)
    plain_uses: list[tuple[Source, cst.Attribute]] = field(default_factory=list)
    registered: set[cst.Call] = field(default_factory=set)


@dataclass
class StateDicts:
    """State dicts and their configs (`state_dicts`).

    Attributes:
        configs: the configs that variables hold, by definition.
        option_variables: definitions that hold `StateDictOptions` after the rewrite, and their
            arguments.
        local_uses: the first use of each state method on models with LOCAL_STATE_DICT.
        typed_calls: calls for the states whose type a `state_dict_type` block sets.
        gathers_optimizer: whether plain optimizer states are gathered after the rewrite.
        part_calls: calls for the state of a module with wrapped parts, or of a part, and whether
            FSDP1 gives whole parameters there.
        holders: modules that are not wrapped themselves but have wrapped parts.
    """

    configs: dict[cst.CSTNode, Config] = field(default_factory=dict)
    option_variables: dict[cst.CSTNode, list[str]] = field(default_factory=dict)
    local_uses: dict[str, tuple[Source, cst.CSTNode]] = field(default_factory=dict)
    typed_calls: set[cst.CSTNode] = field(default_factory=set)
    gathers_optimizer: bool = False
    part_calls: dict[cst.CSTNode, bool] | None = None
    holders: set[str] | None = None

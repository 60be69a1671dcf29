"""Small functions in the migrated file that keep FSDP1's order and count of submodules."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from fsdplint.fixes.syntax import library_name
from fsdplint.migration.analysis.variables import fresh, function_name
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import META_TO_SEVERAL_DEVICES
from fsdplint.migration.blockers.policies import (
    INITIALIZED_IN_SEVERAL_WAYS,
    PARAM_INIT_FN_WITH_POLICY,
    TWO_SIZE_POLICIES,
)
from fsdplint.migration.constructor.helper_place import helper_place
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source


def containers(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The text of the classes of modules without a forward."""
    lists = library_name(migration.rewrite, source, "torch.nn.ModuleList", at)
    dicts = library_name(migration.rewrite, source, "torch.nn.ModuleDict", at)
    return f"({lists}, {dicts})"


def size_helper(
    migration: Migration,
    source: Source,
    at: cst.CSTNode,
    leaves: str | None,
    excluded: str | None,
    *,
    initializes: bool,
    ignores: bool,
    norms: bool,
    tests: bool = False,
    ties: bool = False,
) -> str:
    """Write the function that shards by size as FSDP1 does; returns its name.

    tests: whether the function also shards the submodules that pass a test, as `_or_policy` does.
        FSDP1 then looks into every module.

    initializes: whether the function also initializes each submodule before it shards it.
    ignores: whether some parameters are not sharded, which do not count.
    norms: whether batch norms are sharded before. FSDP1 then looks into small modules, too.
    ties: whether modules may share a weight. FSDP2 has it in one group only.
    """
    name = function_name(source, "shard_large_modules")
    conflict = Blocked(source, at, TWO_SIZE_POLICIES())
    variant = f"{leaves} {excluded} {initializes} {ignores} {norms} {tests} {ties}"
    if not migration.add_helper(f"size {source.path}", variant, conflict):
        return name
    top = helper_place(migration, source, at)
    function, line = _initializing(migration, source, at) if initializes else ("", [])
    ignored = _IGNORED if ignores else _Ignored()
    shard = migration.need(source, "torch.distributed.fsdp", "fully_shard", top)
    if leaves is None:
        leaves = library_name(migration.rewrite, source, "torch.nn.MultiheadAttention", top)
    if excluded is None:
        excluded = containers(migration, source, top)
    without = [f"\t\tif numel < min_num_params or isinstance(module, {leaves}):", "\t\t\treturn 0"]
    if norms:
        sharded = migration.need(source, "torch.distributed.fsdp", "FSDPModule", top)
        without = [
            f"\t\tif isinstance(module, {sharded}):",
            "\t\t\treturn numel",
            f"\t\tif isinstance(module, {leaves}):",
            "\t\t\treturn 0",
        ]
    if tests:
        migration.rewrite.insert_function(source, top, _size_or_test(name, shard, excluded))
        return name
    migration.rewrite.insert_function(
        source,
        top,
        [
            f"def {name}(model, min_num_params, {function}{ignored.parameter}**kwargs):",
            '\t"""Shard each submodule that holds at least min_num_params parameters which no',
            "\tsubmodule of its own has taken.",
            '\t"""',
            "",
            "\tdef visit(module):",
            f"\t\tnumel = sum(p.numel() for p in module.parameters(){ignored.test})",
            *without,
            "\t\ttaken = sum(visit(child) for child in module.children())",
            f"\t\tif module is model or isinstance(module, {excluded}):",
            "\t\t\treturn taken",
            "\t\tif numel - taken < min_num_params:",
            "\t\t\treturn taken",
            *(_SHARED if ties else ()),
            *line,
            f"\t\t{shard}(module, {ignored.argument}**kwargs)",
            "\t\treturn numel",
            "",
            "\tvisit(model)",
        ],
    )
    return name


_SHARED = (
    "\t\tinside, own = set(module.modules()), set(module.parameters())",
    "\t\touter = (other for other in model.modules() if other not in inside)",
    "\t\tif any(p in own for other in outer for p in other.parameters(recurse=False)):",
    "\t\t\treturn taken  # a unit around both modules has the weight that they share",
)


def _size_or_test(name: str, shard: str, excluded: str) -> list[str]:
    """The function that shards by size or by a test."""
    return [
        f"def {name}(model, min_num_params, test, **kwargs):",
        '\t"""Shard each submodule for which test(module) holds, or that holds at least min_num_params',
        "\tparameters which no submodule of its own has taken.",
        '\t"""',
        "",
        "\tdef visit(module):",
        "\t\tnumel = sum(p.numel() for p in module.parameters())",
        "\t\ttaken = sum(visit(child) for child in module.children())",
        f"\t\tlarge = numel - taken >= min_num_params and not isinstance(module, {excluded})",
        "\t\tif module is model or not (large or test(module)):",
        "\t\t\treturn taken",
        f"\t\t{shard}(module, **kwargs)",
        "\t\treturn numel",
        "",
        "\tvisit(model)",
    ]


def policy_helper(
    migration: Migration, source: Source, at: cst.CSTNode, *, initializes: bool, ignores: bool
) -> str:
    """Write the function that applies a policy of three parameters; returns its name.

    initializes, ignores: see `size_helper`.
    """
    name = function_name(source, "shard_by_policy")
    conflict = Blocked(source, at, PARAM_INIT_FN_WITH_POLICY())
    if not migration.add_helper(f"policy {source.path}", f"{initializes} {ignores}", conflict):
        return name
    top = helper_place(migration, source, at)
    function, line = _initializing(migration, source, at) if initializes else ("", [])
    ignored = _IGNORED if ignores else _Ignored()
    shard = migration.need(source, "torch.distributed.fsdp", "fully_shard", top)
    migration.rewrite.insert_function(
        source,
        top,
        [
            f"def {name}(model, policy, {function}{ignored.parameter}**kwargs):",
            '\t"""Shard the submodules that a policy(module, recurse, nonwrapped_numel) picks,',
            "\tchildren first.",
            '\t"""',
            "",
            "\tdef visit(module):",
            *ignored.skip,
            f"\t\tnumel = sum(p.numel() for p in module.parameters(){ignored.test})",
            "\t\tif not policy(module=module, recurse=True, nonwrapped_numel=numel):",
            "\t\t\treturn 0",
            "\t\ttaken = sum(visit(child) for child in module.children())",
            "\t\tif module is model:",
            "\t\t\treturn taken",
            "\t\tif not policy(module=module, recurse=False, nonwrapped_numel=numel - taken):",
            "\t\t\treturn taken",
            *line,
            f"\t\t{shard}(module, {ignored.argument}**kwargs)",
            "\t\treturn numel",
            "",
            "\tvisit(model)",
        ],
    )
    return name


@dataclass(frozen=True)
class _Ignored:
    """The parts of a helper for a model with ignored parameters."""

    parameter: str = ""
    argument: str = ""
    test: str = ""
    skip: tuple[str, ...] = ()


_IGNORED = _Ignored(
    "ignored_params=frozenset(), ",
    "ignored_params=ignored_params, ",
    " if p not in ignored_params",
    (
        "\t\tparameters = set(module.parameters())",
        "\t\tif parameters and parameters <= ignored_params:",
        "\t\t\treturn 0",
    ),
)


def _initializing(migration: Migration, source: Source, at: cst.CSTNode) -> tuple[str, list[str]]:
    """The parameter and the line with which a helper initializes a module before it shards it."""
    initialize = initialize_helper(migration, source, at)
    return "param_init_fn, ", [f"\t\t{initialize}(module, param_init_fn)"]


def matching_helper(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """Write the function that shards the submodules that pass a test; returns its name."""
    name = function_name(source, "shard_matching_modules")
    if not migration.add_helper(f"matching {source.path}"):
        return name
    top = helper_place(migration, source, at)
    shard = migration.need(source, "torch.distributed.fsdp", "fully_shard", top)
    migration.rewrite.insert_function(
        source,
        top,
        [
            f"def {name}(model, test, **kwargs):",
            '\t"""Shard the submodules for which test(module) holds, children first."""',
            "\tfor module in reversed(list(model.modules())[1:]):",
            "\t\tif test(module):",
            f"\t\t\t{shard}(module, **kwargs)",
        ],
    )
    return name


def initialize_helper(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """Write the function that initializes a module on the meta device; returns its name."""
    top = helper_place(migration, source, at)
    name = fresh(source, top, "initialize", "initialize_module")
    if not migration.add_helper(f"initialize {source.path}"):
        return name
    sharded = migration.need(source, "torch.distributed.fsdp", "FSDPModule", top)
    migration.rewrite.insert_function(
        source,
        top,
        [
            f"def {name}(module, param_init_fn):",
            '\t"""Give what is on the meta device memory and values, just before it is sharded."""',
            "\tparts = [module]",
            "\tfor part in parts:",
            "\t\tfor child in part.children():",
            f"\t\t\tif child not in parts and not isinstance(child, {sharded}):",
            "\t\t\t\tparts.append(child)",
            "\tif param_init_fn is not None and any(",
            "\t\ttensor.is_meta",
            "\t\tfor part in parts",
            "\t\tfor tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False))",
            "\t):",
            "\t\tfor part in parts:",
            "\t\t\tparam_init_fn(part)",
        ],
    )
    return name


def rank0_helper(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """Write the function that gives all ranks what rank 0 initializes; returns its name."""
    top = helper_place(migration, source, at)
    name = fresh(source, top, "from_rank0", "initialize_from_rank0")
    if not migration.add_helper(f"from rank 0 {source.path}"):
        return name
    broadcast = migration.dist(source, top, "broadcast")
    migration.rewrite.insert_function(
        source,
        top,
        [
            f"def {name}(param_init_fn):",
            '\t"""A function that initializes a module, and gives all ranks the values of rank 0."""',
            "",
            "\tdef initialize(module):",
            "\t\tparam_init_fn(module)",
            "\t\tfor tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):",
            f"\t\t\t{broadcast}(tensor.detach(), src=0)",
            "",
            "\treturn initialize",
        ],
    )
    return name


def reset_helper(migration: Migration, source: Source, at: cst.CSTNode, device: str) -> str:
    """Write FSDP1's default for `param_init_fn`; returns the function's name."""
    top = helper_place(migration, source, at)
    name = fresh(source, top, "reset_module", "reset_own_parameters")
    conflict = Blocked(source, at, META_TO_SEVERAL_DEVICES())
    if not migration.add_helper(f"reset {source.path}", device, conflict):
        return name
    no_grad = migration.torch(source, top) + ".no_grad()"
    migration.rewrite.insert_function(
        source,
        top,
        [
            f"@{no_grad}",
            f"def {name}(module):",
            '\t"""Give what a module itself holds memory, and the values of its reset_parameters."""',
            "\tif [*module.parameters(recurse=False), *module.buffers(recurse=False)]:",
            f"\t\tmodule.to_empty(device={device}, recurse=False)",
            "\t\tmodule.reset_parameters()",
        ],
    )
    return name


def initializing_helper(
    migration: Migration, source: Source, at: cst.CSTNode, *, own: bool = False, norms: str = ""
) -> str:
    """Write the function that initializes and shards the submodules that pass a test.

    It keeps FSDP1's order, which decides on the random numbers of each module. Returns its name.

    own: whether the test gives the arguments of a module, and None for one that is no unit.
    norms: the class of the modules that get arguments of their own.

    Raises:
        Blocked: another call needs another form of the function.
    """
    name = function_name(source, "initialize_and_shard")
    conflict = Blocked(source, at, INITIALIZED_IN_SEVERAL_WAYS())
    if not migration.add_helper(f"initializing {source.path}", f"{own} {norms}", conflict):
        return name
    top = helper_place(migration, source, at)
    initialize = initialize_helper(migration, source, at)
    shard = migration.need(source, "torch.distributed.fsdp", "fully_shard", top)
    sharded = migration.need(source, "torch.distributed.fsdp", "FSDPModule", top)
    parameter, given = ("norms, ", "norms, ") if norms else ("", "")
    test = "\t\tif test(child):"
    unit = f"\t\t\t{shard}(child, **kwargs)"
    purpose = "the submodules for which test(module) holds"
    if own:
        test, unit = "\t\tif own is not None:", f"\t\t\t{shard}(child, **{{**kwargs, **own}})"
        purpose = "the submodules that test(module) gives arguments"
    apart = [
        f"\t\tif norms is not None and isinstance(child, {norms}):",
        f"\t\t\t{initialize}(child, param_init_fn)",
        f"\t\t\t{shard}(child, **norms)",
        "\t\t\tcontinue",
    ]
    migration.rewrite.insert_function(
        source,
        top,
        [
            f"def {name}(module, test, param_init_fn, {parameter}**kwargs):",
            f'\t"""Initialize and shard {purpose}, children first."""',
            "\tfor child in module.children():",
            f"\t\tif isinstance(child, {sharded}):",
            "\t\t\tcontinue",
            f"\t\t{name}(child, test, param_init_fn, {given}**kwargs)",
            *(apart if norms else []),
            *(["\t\town = test(child)"] if own else []),
            test,
            f"\t\t\t{initialize}(child, param_init_fn)",
            unit,
        ],
    )
    return name

"""Qualified names of libraries: one canonical name for each object, and its references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import lru_cache

import libcst as cst

from fsdplint.source.positions import code_children
from fsdplint.source.source import Source, once
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.dotted import dotted_name

# Private or former modules of torch, and the documented ones. The longest prefix wins.
PREFIXES = {
    "torch.distributed._shard.checkpoint": "torch.distributed.checkpoint",
    "torch.distributed.fsdp.fully_sharded_data_parallel": "torch.distributed.fsdp",
    "torch.distributed.fsdp.api": "torch.distributed.fsdp",
    "torch.distributed._tensor": "torch.distributed.tensor",
    "torch.distributed._tensor.api": "torch.distributed.tensor",
    "torch.distributed._tensor.device_mesh": "torch.distributed.device_mesh",
    "torch.distributed.distributed_c10d": "torch.distributed",
    "torch.nn.parallel.distributed": "torch.nn.parallel",
    "torch.nn.modules.module": "torch.nn",
    "torch.nn.modules.container": "torch.nn",
    "torch.nn.modules.linear": "torch.nn",
    "torch.nn.modules.sparse": "torch.nn",
    "torch.nn.modules.normalization": "torch.nn",
    "torch.nn.modules.batchnorm": "torch.nn",
    "torch.nn.modules.activation": "torch.nn",
    "torch.nn.modules.transformer": "torch.nn",
    "torch.nn.modules": "torch.nn",
    "torch.nn.parameter": "torch.nn",
    "torch.optim.adamw": "torch.optim",
    "torch.optim.adam": "torch.optim",
    "torch.optim.sgd": "torch.optim",
    "torch.serialization": "torch",
    "torch.distributed.checkpoint.state_dict_saver": "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict_loader": "torch.distributed.checkpoint",
    "torch.autograd.grad_mode": "torch",
    "torch.cuda.amp.grad_scaler": "torch.cuda.amp",
    "torch.nn.utils.clip_grad": "torch.nn.utils",
    "torch.utils.data.dataloader": "torch.utils.data",
    "torch.utils.data.dataset": "torch.utils.data",
    "torch.utils.data.distributed": "torch.utils.data",
    "torch.utils.data.sampler": "torch.utils.data",
}
# What `torch.distributed.fsdp` offers for FSDP2; everything else in that package is FSDP1's.
FSDP2 = frozenset(
    {
        "fully_shard",
        "FSDPModule",
        "UnshardHandle",
        "register_fsdp_forward_method",
        "MixedPrecisionPolicy",
        "OffloadPolicy",
        "CPUOffloadPolicy",
        "share_comm_ctx",
        "DataParallelMeshDims",
        "GradientReductionHandle",
    }
)
# Other modules with these names. Their further names are private to FSDP2.
# `_composable.fsdp` is where fully_shard lived in 2.4 and 2.5.
_FSDP2_HOMES = frozenset(
    {
        "torch.distributed._composable.fsdp",
        "torch.distributed._composable.fsdp.fully_shard",
        "torch.distributed.fsdp._fully_shard",
        "torch.distributed.fsdp._fully_shard._fully_shard",
        "torch.distributed.fsdp._fully_shard._fsdp_api",
    }
)

# Those that `torch.autograd` and `torch` export.
_AUTOGRAD_MODES = frozenset({"enable_grad", "inference_mode", "no_grad", "set_grad_enabled"})

_CONFIGS = (
    "BackwardPrefetch CPUOffload FullOptimStateDictConfig FullStateDictConfig "
    "LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision OptimStateDictConfig "
    "ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy StateDictConfig "
    "StateDictSettings StateDictType"
).split()
# The names of `from module import *`: `__all__` of torch 2.13.
PUBLIC = {
    "torch.distributed.fsdp": [
        *_CONFIGS,
        *(
            "FullyShardedDataParallel OptimStateKeyType CPUOffloadPolicy FSDPModule fully_shard "
            "MixedPrecisionPolicy OffloadPolicy register_fsdp_forward_method UnshardHandle "
            "DataParallelMeshDims share_comm_ctx"
        ).split(),
    ],
    "torch.distributed.fsdp.api": _CONFIGS,
    "torch.distributed.fsdp.fully_sharded_data_parallel": [
        "FullyShardedDataParallel",
        "OptimStateKeyType",
    ],
    "torch.distributed.fsdp.wrap": (
        "always_wrap_policy lambda_auto_wrap_policy transformer_auto_wrap_policy wrap "
        "size_based_auto_wrap_policy enable_wrap CustomPolicy ModuleWrapPolicy"
    ).split(),
    "torch.distributed.checkpoint.state_dict": (
        "StateDictOptions get_model_state_dict get_optimizer_state_dict get_state_dict "
        "set_model_state_dict set_optimizer_state_dict set_state_dict"
    ).split(),
}

# The module of each public name of FSDP1. The module `wrap` has the name of its function.
FSDP1_HOMES = {
    name: home
    for home in ("torch.distributed.fsdp", "torch.distributed.fsdp.wrap")
    for name in PUBLIC[home]
    if name not in FSDP2 and name != "wrap"
} | {"ShardedGradScaler": "torch.distributed.fsdp.sharded_grad_scaler"}


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """The public name of a dotted name of a library.

    A name of FSDP1 counts wherever the program takes it from the public part of its package.
    """
    head, _, last = name.rpartition(".")
    if last in FSDP1_HOMES and _is_public_part(head):
        return f"{FSDP1_HOMES[last]}.{last}"
    if head in _FSDP2_HOMES and last in FSDP2:
        return f"torch.distributed.fsdp.{last}"
    if head == "torch.autograd" and last in _AUTOGRAD_MODES:
        return f"torch.{last}"
    return f"{PREFIXES[head]}.{last}" if head in PREFIXES else name


def _is_public_part(module: str) -> bool:
    """Whether a name is that of FSDP's package or of a module in it, without a private name."""
    inside = f"{module}.".startswith("torch.distributed.fsdp.")
    return inside and module.islower() and "._" not in module


# Modules that have the names of others, too.
_FSDP1_REEXPORTS = (
    "torch.distributed.fsdp.api",
    "torch.distributed.fsdp.fully_sharded_data_parallel",
)


def is_misplaced(name: str) -> bool:
    """Whether a dotted name is one of FSDP1 in a module of its package that does not have it."""
    head, _, last = name.rpartition(".")
    if last not in FSDP1_HOMES or not _is_public_part(head):
        return False
    return head not in (FSDP1_HOMES[last], *_FSDP1_REEXPORTS)


def uses(node: cst.CSTNode, names: Set[str]) -> bool:
    """Whether a node uses one of some dotted names; a definition is no use."""
    stack = [node]
    while stack:
        current = stack.pop()
        match current:
            case cst.Name():
                if current.value in names:
                    return True
            case cst.Attribute():
                if dotted_name(current) in names:
                    return True
                stack.append(current.value)
            case cst.Arg():
                stack.append(current.value)
            case cst.FunctionDef() | cst.ClassDef() | cst.Param():
                stack += [child for child in code_children(current) if child is not current.name]
            case _:
                stack += code_children(current)
    return False


@once
def imported_names(source: Source) -> Mapping[str, str]:
    """Every absolute import of a file, anywhere in it: local name to dotted name."""
    result: dict[str, str] = {}
    for node in walk(source):
        if isinstance(node, cst.Import):
            for alias in node.names:
                full = dotted_name(alias.name)
                if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                    result[alias.asname.name.value] = full
                else:
                    head = full.partition(".")[0]
                    result[head] = head
        elif isinstance(node, cst.ImportFrom) and not node.relative and node.module is not None:
            base = dotted_name(node.module)
            if isinstance(node.names, cst.ImportStar):
                result.update({name: f"{base}.{name}" for name in PUBLIC.get(base, ())})
                continue
            for alias in node.names:
                local = alias.evaluated_alias or alias.evaluated_name
                result[local] = f"{base}.{alias.evaluated_name}"
    return result


def references(source: Source, prefix: str) -> Iterator[tuple[Source, cst.CSTNode, str]]:
    """See `Program.references`; only uses the imports of the file."""
    imports = imported_names(source)
    if not any(full.startswith(prefix.partition(".")[0]) for full in imports.values()):
        return
    for node, full in symbols_in(source).items():
        if full.startswith(prefix) and len(full) > len(prefix):
            yield source, node, full


@once
def symbols_in(source: Source) -> dict[cst.CSTNode, str]:
    """The canonical name of every Name or Attribute node that refers to an import.

    In source order, without the names in import statements. Do not change the result.
    """
    result: dict[cst.CSTNode, str] = {}
    for node in walk(source, skip_imports=True) if imported_names(source) else ():
        if isinstance(node, cst.Name | cst.Attribute):
            full = symbol_of(source, node)
            if full:
                result[node] = full
    return result


def symbol_of(source: Source, node: cst.CSTNode) -> str:
    """The canonical name of a Name or Attribute node that refers to an import; "" for others."""
    imports = imported_names(source)
    head, _, rest = dotted_name(node).partition(".")
    if head not in imports or (head in _rebound_names(source) and _is_local(source, node, head)):
        return ""
    return canonical(imports[head] + ("." + rest if rest else ""))


@once
def _rebound_names(source: Source) -> frozenset[str]:
    """The names that a file binds without an import, in any scope."""
    found: set[str] = set()
    for node in walk(source, skip_imports=True):
        if isinstance(node, _NAMED):
            found.add(node.name.value)
        elif isinstance(node, _TARGETED):
            stack: list[cst.CSTNode] = [node.target]
            while stack:
                part = stack.pop()
                if isinstance(part, cst.Name):
                    found.add(part.value)
                stack.extend(code_children(part))
        elif isinstance(node, cst.AsName | cst.MatchAs | cst.MatchStar):
            if isinstance(node.name, cst.Name):
                found.add(node.name.value)
    return frozenset(found)


_NAMED = (cst.Param, cst.FunctionDef, cst.ClassDef)
_TARGETED = (
    cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.NamedExpr,
)  # fmt: skip


def _is_local(source: Source, node: cst.CSTNode, name: str) -> bool:
    """Whether a name belongs to a scope below the module that binds it without an import."""
    bindings = bindings_of(source)
    owner = bindings.owner(bindings.scope_at(node), name)
    if owner is None or owner is bindings.module:
        return False
    return all(item.local != name for item in owner.imports)


# Nodes that every walk skips: whitespace, brackets, commas.
_LAYOUT = (
    cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine, cst.Comma,
    cst.AssignEqual, cst.LeftParen, cst.RightParen, cst.LeftSquareBracket, cst.RightSquareBracket,
    cst.LeftCurlyBrace, cst.RightCurlyBrace, cst.Semicolon, cst.Colon, cst.Dot,
)  # fmt: skip
_roles: dict[type, str] = {}


def walk(source: Source, *, skip_imports: bool = False) -> tuple[cst.CSTNode, ...]:
    """The nodes of a file in source order, cached.

    Of an attribute chain only the outermost node is included. Layout, and the names of attributes,
    keyword arguments and definitions are skipped.
    """
    made = source.walks.get(skip_imports)
    if made is not None:
        return made
    result: list[cst.CSTNode] = [source.tree]
    for part in source.parts:
        known = part.walks.get(skip_imports)
        if known is None:
            found = [one for node in part.nodes for one in _walk(node, skip_imports)]
            known = tuple(found)
            if source.typed_in:
                part.walks[skip_imports] = known
        result += known
    source.walks[skip_imports] = tuple(result)
    return source.walks[skip_imports]


def _walk(node: cst.CSTNode, skip_imports: bool) -> Iterator[cst.CSTNode]:
    stack = [node]
    while stack:
        current = stack.pop()
        kind = type(current)
        role = _roles.get(kind)
        if role is None:
            role = _roles[kind] = _role(kind)
        if role == "layout":
            continue
        yield current
        if role == "import" and skip_imports:
            continue
        if role == "attribute":
            assert isinstance(current, cst.Attribute)
            if not dotted_name(current):
                stack.append(current.value)
            continue
        if role == "argument":
            assert isinstance(current, cst.Arg)
            stack.append(current.value)
            continue
        below = code_children(current)
        if role == "named":
            assert isinstance(current, cst.FunctionDef | cst.ClassDef | cst.Param)
            name = current.name
            below = [child for child in below if child is not name]
        below.reverse()
        stack += below


def _role(kind: type) -> str:
    """The role of a type of node in a walk."""
    roles: dict[str, tuple[type, ...]] = {
        "layout": _LAYOUT,
        "import": (cst.Import, cst.ImportFrom),
        "attribute": (cst.Attribute,),
        "argument": (cst.Arg,),
        "named": (cst.FunctionDef, cst.ClassDef, cst.Param),
    }
    return next((role for role, kinds in roles.items() if issubclass(kind, kinds)), "")

"""The sites of a file: the calls of the contract's API that syntax and names show.

A site is found without executing anything, so that coverage can say which sites no run came to. A
name that a file imports from a library is judged by its canonical name, any other callee by the
last part of its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

import libcst as cst

from fsdplint.source.source import Source, once
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.qualified_names import imported_names, symbol_of, walk


class SiteKind(Enum):
    """What a site does in the contract."""

    SHARDING = "sharding"
    OPTIMIZER = "optimizer"
    STATE = "state dict"
    STORAGE = "save or load"
    CLIPPING = "gradient clipping"
    BACKWARD = "backward"
    STEP = "optimizer step"
    SYNCHRONIZATION = "gradient synchronization"
    UNSHARD = "unshard"
    COLLECTIVE = "collective"


@dataclass(frozen=True)
class ApiSite:
    """A call of the contract's API.

    Attributes:
        node: the call.
        kind: what it does.
        name: the callee as it is written.
    """

    node: cst.Call
    kind: SiteKind
    name: str


_OPTIMIZERS = re.compile(
    r"^(?!\w*(?:Config|Args|Arguments|Options|Settings|State)$)"
    r"(?:Fused|Distributed|Paged|Hybrid|CPU)*"
    r"(?:Ada(?:[Gg]rad|[Dd]elta|[Ff]actor|[Bb]elief|[Bb]ound|n$)\w*|[NR]?Adam\w*|SGD\w*|RMSprop|Rprop"
    r"|LBFGS|LAMB|Lamb|Lion\w*|Muon\w*|Shampoo\w*|Sophia\w*)$"
)
_COLLECTIVES = frozenset(
    """all_gather all_gather_into_tensor all_gather_object all_reduce all_to_all all_to_all_single
    barrier broadcast broadcast_object_list gather gather_object monitored_barrier reduce
    reduce_scatter reduce_scatter_tensor scatter scatter_object_list""".split()
)
_STATES = frozenset(
    """state_dict load_state_dict get_state_dict set_state_dict get_model_state_dict
    set_model_state_dict get_optimizer_state_dict set_optimizer_state_dict optim_state_dict
    optim_state_dict_to_load full_optim_state_dict sharded_optim_state_dict
    scatter_full_optim_state_dict shard_full_optim_state_dict rekey_optim_state_dict
    load_sharded_optimizer_state_dict state_dict_type set_state_dict_type""".split()
)
_BY_NAME: dict[str, SiteKind] = {
    **dict.fromkeys(
        ("FSDP", "FullyShardedDataParallel", "fully_shard", "replicate"), SiteKind.SHARDING
    ),
    **dict.fromkeys(_STATES, SiteKind.STATE),
    **dict.fromkeys(
        ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"), SiteKind.CLIPPING
    ),
    **dict.fromkeys(("summon_full_params", "unshard", "reshard"), SiteKind.UNSHARD),
    "backward": SiteKind.BACKWARD,
    "no_sync": SiteKind.SYNCHRONIZATION,
    "set_requires_gradient_sync": SiteKind.SYNCHRONIZATION,
    "set_is_last_backward": SiteKind.SYNCHRONIZATION,
}
_STORAGE = frozenset(
    """torch.save torch.load torch.distributed.checkpoint.save torch.distributed.checkpoint.load
    torch.distributed.checkpoint.async_save torch.distributed.checkpoint.save_state_dict
    torch.distributed.checkpoint.load_state_dict""".split()
)
# The last parts of the names of all sites except optimizers.
_NAMES = frozenset(
    ("step", *_BY_NAME, *_COLLECTIVES, *(name.rpartition(".")[2] for name in _STORAGE))
)
_STEPPED = re.compile(r"optim|opt$|^opt|scaler", re.IGNORECASE)
_METHODS_ONLY = frozenset(("backward", "unshard", "reshard", "state_dict"))
# Names that are the contract's only where torch's own are meant or a method is called.
_FUNCTIONS_OF_TORCH = frozenset(("replicate",))


def names_of(kind: SiteKind) -> list[str]:
    """The last parts of the names by which sites of a kind are known, optimizers left out."""
    return [name for name, one in _BY_NAME.items() if one is kind]


@once
def sites_in(source: Source) -> tuple[ApiSite, ...]:
    """The sites of a file, in source order. Not to be changed."""
    found = []
    for node in walk(source, skip_imports=True):
        if isinstance(node, cst.Call):
            kind = _kind(source, node.func)
            if kind is not None:
                found.append(ApiSite(node, kind, _written_name(node.func)))
    return tuple(found)


def _kind(source: Source, function: cst.BaseExpression) -> SiteKind | None:
    """What the call of a function does."""
    if isinstance(function, cst.Attribute):
        last, receiver = function.attr.value, function.value
    elif isinstance(function, cst.Name):
        last, receiver = function.value, None
    else:
        return None
    is_alias = receiver is None and last in imported_names(source)
    if last not in _NAMES and not is_alias and not _OPTIMIZERS.match(last):
        return None  # most calls: to find out what a name stands for costs more
    symbol = symbol_of(source, function)
    if symbol:
        return _of_library(symbol, last)
    if receiver is None and (last in _METHODS_ONLY or last in _FUNCTIONS_OF_TORCH):
        return None
    if last == "step":
        return SiteKind.STEP if receiver is not None and _is_optimizer(receiver) else None
    if receiver is None and _OPTIMIZERS.match(last):
        return SiteKind.OPTIMIZER
    return _BY_NAME.get(last)


def _of_library(symbol: str, last: str) -> SiteKind | None:
    package = symbol.rpartition(".")[0]
    if symbol in _STORAGE:
        return SiteKind.STORAGE
    if package == "torch.distributed" and last in _COLLECTIVES:
        return SiteKind.COLLECTIVE
    if _OPTIMIZERS.match(last) and "." in symbol:
        return SiteKind.OPTIMIZER
    if package.startswith("torch"):
        return _BY_NAME.get(last) if package != "torch.autograd" else None
    return SiteKind.SHARDING if last in ("FSDP", "FullyShardedDataParallel") else None


def _is_optimizer(receiver: cst.BaseExpression) -> bool:
    """Whether the receiver of `step` is an optimizer or a gradient scaler by its name."""
    while isinstance(receiver, cst.Subscript | cst.Call):
        receiver = receiver.value if isinstance(receiver, cst.Subscript) else receiver.func
    name = dotted_name(receiver).rpartition(".")[2]
    return _STEPPED.search(name) is not None and "sched" not in name.lower()


def _written_name(function: cst.BaseExpression) -> str:
    name = dotted_name(function)
    if name:
        return name
    return f"(...).{function.attr.value}" if isinstance(function, cst.Attribute) else "(...)"

"""The words of FSDP: what decides whether a file, a statement or a name is about it.

Each question has its own words. The coarse ones come first: they decide which files are read at
all, on bytes and without parsing.
"""

from __future__ import annotations

import re

FSDP_PACKAGE = "torch.distributed.fsdp"
FSDP2_PACKAGE = f"{FSDP_PACKAGE}._fully_shard"  # where FSDP2's private modules are

# Bytes: files and statements that may matter ----------------------------------------------------

_MENTIONS = (b"fsdp", b"fully_shard", b"fullyshard")

# How code names the API: torch's public modules and names, and the settings of frameworks. A name
# that is made up of more, `use_fsdp`, an attribute, `args.fsdp`, and a string that something is
# compared to are names of the project: the code behind them is seen where it is defined.
_API = re.compile(
    rb"""
    (?<! [\w\x80-\xff"'])
    (?: FullyShardedDataParallel(?:Plugin)? | FSDP(?:Strategy)?
      | fully_shard | register_fsdp_forward_method
    )
    (?! [\w\x80-\xff"'])
    | (?<! [\w\x80-\xff.]) fsdp \s* = (?!=)
    | (?: distributed | _composable ) (?: \. | \s+ import \s [^;]*? \b ) fsdp
      (?! [\w\x80-\xff] | \._ | \.FSDPModule\b )
    | \b fsdp_config \b
    | ["'] fsdp \w* ["'] (?: \s* : | \s* \] \s* = (?!=) )
    | (?: (?<![=!<>]) = | : | \b return | \b else ) \s* \(? ["'] fsdp
    """,
    re.VERBOSE,
)
# These shard nothing: code that only tests whether a module is sharded does not make its callers
# relevant.
_QUERIES = re.compile(rb"\b(?:FSDPModule|_fsdp_wrapped_module)\b")
QUERY_NAMES = frozenset(["FSDPModule", "UnshardHandle"])


def mentions(data: bytes) -> bool:
    """Whether the content of a file holds a word of FSDP anywhere."""
    text = data.lower()
    return any(word in text for word in _MENTIONS)


def names_api(statement: bytes) -> bool:
    """Whether a statement names the API of FSDP or a setting of it."""
    return _API.search(statement) is not None


def queries_sharding(statement: bytes) -> bool:
    """Whether a statement names what tests whether a module is sharded."""
    return _QUERIES.search(statement) is not None


# Texts: sources and names ----------------------------------------------------------------------

_FSDP1 = re.compile(r"FullyShardedDataParallel|torch\.distributed\.fsdp\b(?!\._)")
# Code on which a rule may have something to say.
CONTRACT_WORDS = re.compile(
    r"fsdp|shard|optim|state_dict|no_sync|requires_gradient_sync|clip_grad|deepcopy|_wrap|wrap_"
    r"|full_tensor|precision|offload|torch\.save|dcp|to_empty|init_process_group|parallelize|peft|_adapter",
    re.IGNORECASE,
)
# Code that may make a model or do something with one.
MODEL_WORDS = re.compile(
    rf"{CONTRACT_WORDS.pattern}|^(?:self\.)?(?:model|module|net|network)s?$|^nn\.\w|backward",
    re.IGNORECASE,
)
# Code of models on which a migration may depend, and other such code. A class that loads a state
# most often loads that of a model of its own.
_SHARDING = (
    "fsdp|shard|optim|no_sync|clip_grad|_wrap|wrap_|full_tensor|offload|to_empty|parallelize"
)
STRUCTURE_WORDS = re.compile(
    rf"{_SHARDING}|batch_?norm|register_buffer|requires_grad|tie_weight", re.IGNORECASE
)
MIGRATION_WORDS = re.compile(
    rf"{_SHARDING}|(?<![\w'\"])state_dict|torch\.save|dcp|init_process_group", re.IGNORECASE
)
# Code that may give all ranks the same value.
REDUCING_WORDS = re.compile(r"reduce|gather|broadcast|sync", re.IGNORECASE)
# Code that uses FSDP.
FSDP_WORDS = re.compile(r"fsdp|fully_?shard|state_dict_type|no_sync", re.IGNORECASE)
_STRATEGIES = re.compile(r"fsdp|ddp|deepspeed|distributed|shard|parallel", re.IGNORECASE)


def names_fsdp1(text: str) -> bool:
    """Whether a source names FSDP1's class or its package."""
    return _FSDP1.search(text) is not None


def has_fsdp(text: str) -> bool:
    """Whether a source or name contains "fsdp", in capitals or not."""
    return "fsdp" in text.lower()


def names_strategy(option: str) -> bool:
    """Whether the name of an option says that it chooses how a model is distributed."""
    return _STRATEGIES.search(option) is not None

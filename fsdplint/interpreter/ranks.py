"""Values that depend on the rank, recognized by their origin or their name."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankTest, RankValue
from fsdplint.interpreter.values import Const, Unknown, Value
from fsdplint.syntax.dotted import dotted_name
from fsdplint.trace import LauncherArgumentUsed, Ranks

# Names that public code uses for the number of this rank only, with the scope.
RANK_NAMES = {
    "rank": "global",
    "global_rank": "global",
    "RANK": "global",
    "world_rank": "global",
    "process_index": "global",
    "local_rank": "local",
    "LOCAL_RANK": "local",
    "local_process_index": "local",
}
# Names of flags and functions that are true on rank 0 alone.
MAIN_NAMES = {
    "is_main_process",
    "is_main",
    "is_master",
    "is_master_process",
    "is_rank_zero",
    "is_rank_0",
    "is_rank0",
    "is_global_zero",
    "is_world_process_zero",
    "is_world_master",
    "main_process",
    "master_process",
}
# Those that are true on one rank of each machine.
LOCAL_MAIN_NAMES = {"is_local_main_process", "is_local_process_zero"}
# Next to one of these words, "rank" is the rank of a matrix.
OTHER_RANKS = re.compile(r"lora|adapter|peft|svd|low_?rank|tucker", re.IGNORECASE)
WORLD_SIZE_NAMES = {"world_size", "WORLD_SIZE"}
WORLD_SIZE = "world size"  # the origin of the number of ranks, which is above one
LAUNCHED = {"RANK", "LOCAL_RANK", "WORLD_SIZE"}  # environment variables of the launcher


_DEVICE = re.compile(r"(cuda|cpu|hpu|npu|xpu):", re.IGNORECASE)


def names_device(text: cst.FormattedString) -> bool:
    """Whether a formatted string is the name of a device: `f"cuda:{rank}"`."""
    first = text.parts[0] if text.parts else None
    return isinstance(first, cst.FormattedStringText) and bool(_DEVICE.match(first.value))


def is_rank_name(name: str) -> bool:
    """Whether a name alone identifies a rank, a test of it or the number of ranks."""
    return any(
        name in names for names in (RANK_NAMES, MAIN_NAMES, LOCAL_MAIN_NAMES, WORLD_SIZE_NAMES)
    )


def value_by_name(name: str, origin: str) -> Value:
    """An unknown value of this name: a rank, a test of the rank, or Unknown."""
    if name in WORLD_SIZE_NAMES:
        return Unknown(origin=WORLD_SIZE)
    if name == "rank" and OTHER_RANKS.search(origin):
        return Unknown(origin=origin)
    if name in RANK_NAMES:
        return RankValue(RANK_NAMES[name])
    if name in MAIN_NAMES:
        return RankTest(Ranks.ONE, Ranks.OTHERS, number=0)
    if name in LOCAL_MAIN_NAMES:
        return RankTest(Ranks.SOME, Ranks.SOME, each_node=True, number=0)
    return Unknown(origin=origin)


def assumed_rank(run: Run, node: cst.CSTNode, value: Value) -> RankValue | None:
    """The rank that an attribute or parameter of such a name stands for; None if it is no rank.

    Its value is a number only because of a default or a test of the program on one process.
    """
    if isinstance(node, cst.Attribute):
        return rank_default(node.attr.value, dotted_name(node), value)
    function = run.frames[-1].function if run.frames else None
    if not isinstance(node, cst.Name) or function is None:
        return None
    params = function.node.params
    every = (*params.posonly_params, *params.params, *params.kwonly_params)
    if all(param.name.value != node.value for param in every):
        return None
    return rank_default(node.value, f"{function.name}.{node.value}", value)


def rank_default(name: str, origin: str, value: Value | None) -> RankValue | None:
    """The rank that a name stands for whose default is a number; None if it is no rank."""
    if not isinstance(value, Const) or type(value.value) is not int or value.value < 0:
        return None  # -1: there are no ranks
    found = value_by_name(name, origin)
    return found if isinstance(found, RankValue) else None


def environment(key: Value) -> Value:
    """`os.environ[key]`."""
    name = key.value if isinstance(key, Const) else None
    if name in {"RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK"}:
        local = name in {"LOCAL_RANK", "SLURM_LOCALID"}
        return RankValue("local" if local else "global")
    if name == "WORLD_SIZE":
        return Unknown(origin=WORLD_SIZE)
    return Unknown(origin=f"os.environ[{name!r}]")


def depends_on_rank(value: Value) -> bool:
    return isinstance(value, RankValue) or (isinstance(value, Unknown) and value.by_rank)


def is_world_size(value: Value) -> bool:
    """Whether a value certainly is the number of ranks."""
    return isinstance(value, Unknown) and value.origin == WORLD_SIZE


def is_distinct(value: Value) -> bool:
    """Whether a value is certainly another number on each rank."""
    if isinstance(value, RankValue):
        return value.scope != "group"
    return isinstance(value, Unknown) and value.distinct


def depends_on_process(value: Value) -> bool:
    """Whether a value derives from a property of the process, such as its device."""
    return isinstance(value, Unknown) and value.by_process


# The local rank as a command-line argument --------------------------------------------------------

ARGUMENT = "--local_rank"  # passed by the old launcher
# Code with one of these gets the value from the launcher, or uses another launcher.
_ANSWERS = ("LOCAL_RANK", "deepspeed", "SLURM_", "local-rank", "set_defaults")


def of_argument(run: Run, value: Unknown, name: str) -> RankValue | None:
    """The local rank in the parsed arguments that only the old launcher sets."""
    site = run.launcher_arguments.get(name)
    if site is None or "parse_args()" not in value.origin:
        return None
    for source in run.project.sources.values():
        if any(word in source.text for word in _ANSWERS):
            return None
    return RankValue("local", argument=site)


def note_rank_use(run: Run, node: cst.CSTNode, *values: Value) -> None:
    """Record that launcher arguments among the values choose a device or are compared."""
    for value in values:
        if isinstance(value, RankValue) and value.argument is not None:
            site = value.argument
            event = run.emit(LauncherArgumentUsed, site.node, argument=ARGUMENT, use=run.site(node))
            event.site = site

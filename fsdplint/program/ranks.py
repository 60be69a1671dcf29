"""Values that depend on the rank, told by where they come from or by their names."""

from __future__ import annotations

import re

from fsdplint.program.values import Const, RankTest, RankValue, Unknown, Value
from fsdplint.trace import Ranks

# Names that mean the number of this rank wherever public code uses them, with the scope.
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


# A "rank" next to one of these is that of a matrix.
OTHER_RANKS = re.compile(r"lora|adapter|peft|svd|low_?rank|tucker", re.IGNORECASE)


def named(name: str, origin: str) -> Value:
    """An unknown value that its name says something about: the rank, or a test of it."""
    if name == "rank" and OTHER_RANKS.search(origin):
        return Unknown(origin=origin)
    if name in RANK_NAMES:
        return RankValue(RANK_NAMES[name])
    if name in MAIN_NAMES:
        return RankTest(Ranks.ONE, Ranks.OTHERS)
    if name in {"is_local_main_process", "is_local_process_zero"}:
        return RankTest(Ranks.SOME, Ranks.SOME)
    return Unknown(origin=origin)


def environment(key: Value) -> Value:
    """`os.environ[key]`."""
    name = key.value if isinstance(key, Const) else None
    if name in {"RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK"}:
        local = name in {"LOCAL_RANK", "SLURM_LOCALID"}
        return RankValue("local" if local else "global")
    return Unknown(origin=f"os.environ[{name!r}]")


def depends_on_rank(value: Value) -> bool:
    return isinstance(value, RankValue) or (isinstance(value, Unknown) and value.by_rank)

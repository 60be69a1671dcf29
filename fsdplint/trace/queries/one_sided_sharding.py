"""Models that some of the ranks shard over all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from fsdplint.trace import Guard, GuardKind, Ranks, Sharded, Trace
from fsdplint.trace.queries.meshes import mesh_of


def one_sided_shards(trace: Trace) -> Iterator[Sharded]:
    """The first sharding by some ranks alone at each test of the rank, if all ranks are meant."""
    seen: set[object] = set()
    shards = list(trace.of(Sharded))
    for shard in shards:
        test = _test(shard)
        if test is None and not trace.ends or not _is_over_all(trace, shard):
            continue
        place = shard.ranks if test is None else test.site
        if place in seen:
            continue
        seen.add(place)
        if shard.ranks.partial and not any(_is_counterpart(trace, shard, one) for one in shards):
            yield shard


def _test(shard: Sharded) -> Guard | None:
    """The test by which one certain rank is told from the others."""
    tests = [one for one in shard.guards if one.kind is GuardKind.RANK and one.ranks.partial]
    if len(tests) != 1 or tests[0].asserted or tests[0].in_turn or shard.ranks is Ranks.SOME:
        return None
    return tests[0]


def _is_over_all(trace: Trace, shard: Sharded) -> bool:
    """Whether a sharding certainly is over all ranks: it has no mesh, or one of all ranks."""
    if any(name.startswith("*") for name in shard.options):
        return False
    if "mesh" not in shard.options:
        return True
    mesh = mesh_of(trace, shard)
    if mesh is None or mesh.ranks.partial or not mesh.shape:
        return False
    size = prod(number or 0 for number in mesh.shape)
    return size == len(trace.ends) if trace.ends else mesh.of_world


def _is_counterpart(trace: Trace, shard: Sharded, other: Sharded) -> bool:
    """Whether another rank may shard the same model by another sharding."""
    if other is shard or other.ranks is shard.ranks:
        return False
    modules = trace.modules
    same = modules[other.module].class_name == modules[shard.module].class_name
    return same or other.ranks is Ranks.SOME

"""Arguments that a call spreads."""

from __future__ import annotations

from pathlib import Path

from programs import events, findings, program

from fsdplint.trace import Collective, Sharded


def test_an_empty_tuple_gives_no_argument(tmp_path: Path) -> None:
    """`get_rank()` through a helper is the rank in the whole program, not in a group."""
    found = program(
        tmp_path,
        """
        import torch.distributed as dist

        def call(function, *args, **kwargs):
            return function(*args, **kwargs)

        dist.init_process_group("gloo")
        model = Net()
        fully_shard(model)
        if call(dist.get_rank) == 0:
            dist.barrier()
        """,
    )
    assert findings(found, "FSDP501")


def test_coroutines_that_run_together_are_no_collective(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        import asyncio

        async def make():
            return Net()

        async def main():
            first, second = await asyncio.gather(make(), make())
            fully_shard(first)

        if dist.get_rank() == 0:
            asyncio.run(main())
        """,
    )
    assert not list(events(found, Collective))
    (sharded,) = events(found, Sharded)
    assert found.traces[0].modules[sharded.module].class_name == "Net"

"""Arguments that a call spreads."""

from __future__ import annotations

from pathlib import Path

from programs import findings, program


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

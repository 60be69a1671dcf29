"""`enable_wrap` with a dict of arguments that another function makes."""

from __future__ import annotations

from pathlib import Path

from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import enable_wrap, wrap


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.head = nn.Linear(8, 8)

    def shard(self, options):
        with enable_wrap(wrapper_cls=FSDP, **options):
            self.head = wrap(wrap(self.head))
            self.blocks = nn.ModuleList(wrap(wrap(block)) for block in self.blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Model()
    model.shard(
        dict(
            device_id=torch.device("cpu"),
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
            use_orig_params=False,
        )
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
        loss = model(torch.randn(4, 8, generator=generator)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"{step} {loss.item():.6f}")
    dist.destroy_process_group()


main()
"""


def test_a_dict_of_the_caller_and_modules_wrapped_twice(
    tmp_path: Path, two_ranks: TwoRanks
) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM, encoding="utf-8")
    after = fix(Workspace([path]), [rule() for rule in all_rules()]).texts[path]
    assert "enable_wrap" not in after
    assert after.count("fully_shard(") == 2
    runs = [two_ranks.run(text) for text in (PROGRAM, after)]
    assert [run.status for run in runs] == ["ok", "ok"], "\n".join(map(str, runs))
    assert runs[0].stdout.count("\n") == 6
    assert runs[0].stdout == runs[1].stdout

"""Parts of an optimizer's state that only the ranks of one replica save."""

from __future__ import annotations

from pathlib import Path

from forms import migrated, plan

PROGRAM = """
model = FSDP(Net(), sharding_strategy=ShardingStrategy.HYBRID_SHARD)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
part = dist.get_rank() % torch.cuda.device_count()
if {test}:
    torch.save(optimizer.state_dict(), f"optimizer.{{part}}.pt")
optimizer.load_state_dict(torch.load(f"optimizer.{{part}}.pt"))
"""


def test_the_parts_stay(tmp_path: Path) -> None:
    text = migrated(tmp_path, PROGRAM.format(test="dist.get_rank() < torch.cuda.device_count()"))
    assert '    torch.save(optimizer.state_dict(), f"optimizer.{part}.pt")\n' in text
    assert 'optimizer.load_state_dict(torch.load(f"optimizer.{part}.pt"))' in text


def test_the_part_of_one_rank_is_not_the_whole(tmp_path: Path) -> None:
    found, text = plan(tmp_path, PROGRAM.format(test="dist.get_rank() == 0"))
    assert found.blockers or "get_optimizer_state_dict" in text

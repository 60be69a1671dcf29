"""Programs after a migration that shard nothing, or cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsdplint.cli.main import main

IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
BEFORE = f"""\
import torch
import torch.distributed as dist
from torch import nn
{IMPORT}
dist.init_process_group("gloo")
model = FSDP(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
optimizer = torch.optim.SGD(model.parameters())
for step in range(4):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PLAIN = BEFORE.replace(IMPORT, "").replace("FSDP(nn", "(nn")


def run(command: str, *arguments: Path) -> Result:
    return CliRunner().invoke(main, [command, *map(str, arguments)])


@pytest.mark.parametrize("in_folders", [False, True])
@pytest.mark.parametrize(
    ("after", "code"),
    [
        (PLAIN, 1),
        (BEFORE.replace("FSDP(nn", "(nn"), 1),
        ("x = (\n", 2),
        (IMPORT + "x = (\n", 2),
        (PLAIN.replace("(nn.", "shard(nn.").replace("import torch\n", "import torch\nfrom lib import shard\n", 1), 2),
        (PLAIN.replace("optimizer = ", "shard(model)\noptimizer = ").replace("import torch\n", "import torch\nfrom lib import shard\n", 1), 2),
    ],
)  # fmt: skip
def test_a_program_after_without_sharding(
    after: str, code: int, in_folders: bool, tmp_path: Path
) -> None:
    sides = [tmp_path / "old", tmp_path / "new"]
    for folder, text in zip(sides, (BEFORE, after), strict=True):
        folder.mkdir()
        (folder / "train.py").write_text(text, encoding="utf-8")
    result = run("validate", *(one if in_folders else one / "train.py" for one in sides))
    assert result.exit_code == code, result.output
    assert "keeps" not in result.output
    if code == 1:
        assert result.output.startswith("differs       sharding")

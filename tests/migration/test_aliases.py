"""Variables that are other names of FSDP1's classes and functions."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

AFTER = "model = fully_shard(Net(), reshard_after_forward=False)\n"
ALIASES = {
    "a name": "Wrapper = FSDP\nStrategy = ShardingStrategy\n",
    "getattr": 'Wrapper = getattr(torch.distributed.fsdp, "FullyShardedDataParallel")\n'
    'Strategy = getattr(torch.distributed.fsdp, "ShardingStrategy")\n',
    "import_module": "import importlib\n"
    'Wrapper = importlib.import_module("torch.distributed.fsdp").FullyShardedDataParallel\n'
    'Strategy = importlib.import_module("torch.distributed.fsdp").ShardingStrategy\n',
}


@pytest.mark.parametrize("aliases", ALIASES.values(), ids=ALIASES)
def test_uses_are_rewritten_and_the_variable_goes(aliases: str, tmp_path: Path) -> None:
    call = "model = Wrapper(Net(), sharding_strategy=Strategy.SHARD_GRAD_OP)\n"
    assert migrated(tmp_path, aliases + call).strip().endswith(AFTER.strip())


KEPT = {
    "two assignments": "Wrapper = FSDP\nif args.plain:\n    Wrapper = print\nmodel = Wrapper(Net())\n",
    "another use": "Wrapper = FSDP\nmodel = Wrapper(Net())\ntools.register(Wrapper)\n",
    "no use": "Wrapper = FSDP\nmodel = FSDP(Net())\n",
}


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_what_is_more_than_a_name_blocks(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body)
    assert found.blockers


def test_a_variable_that_another_file_reads_stays(tmp_path: Path) -> None:
    helper, main = tmp_path / "helpers.py", tmp_path / "train.py"
    helper.write_text(
        "import torch.nn as nn\nfrom torch.distributed.fsdp import FullyShardedDataParallel\n"
        "Wrapper = FullyShardedDataParallel\n\ndef build():\n    return Wrapper(nn.Linear(4, 4))\n"
    )
    main.write_text(
        "import torch.distributed as dist\nimport torch.nn as nn\n"
        "from helpers import Wrapper, build\ndist.init_process_group('gloo')\n"
        "print(build(), Wrapper(nn.Linear(2, 2)))\n"
    )
    result = fix(Workspace([main, helper]), [rule() for rule in all_rules()])
    assert not result.texts

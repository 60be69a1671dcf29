"""Dicts and functions of arguments that other files import."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

HELPERS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def options(kind):
    found = dict(use_orig_params=kind)
    if kind:
        found["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
    return found


def shard(model, **kwargs):
    return FSDP(model, **kwargs)
"""

TRAIN = """\
import os
import torch
import torch.distributed as dist
from torch import nn
from helpers import options, shard

torch.cuda.set_device(0)
dist.init_process_group("nccl")
given = options(os.environ["KIND"])
model = shard(nn.Linear(4, 4), **given)
"""

OTHER = "from helpers import options\n\nprint(len(options(1)))\n"


@pytest.mark.parametrize("has_other", [False, True])
def test_callers_in_files_without_fsdp1(tmp_path: Path, has_other: bool) -> None:
    """The files change together; with another use of the dict, its items are read by their keys."""
    texts = {"helpers.py": HELPERS, "train.py": TRAIN, **({"other.py": OTHER} if has_other else {})}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = [tmp_path / name for name in texts]
    found = fix(Workspace(paths), [rule() for rule in all_rules()]).texts
    if has_other:
        assert set(found) == {tmp_path / "helpers.py"}
        text = found[tmp_path / "helpers.py"]
        assert 'kwargs.get("sharding_strategy") == "SHARD_GRAD_OP"' in text
        return
    assert "return sharding_strategy, kind" in found[tmp_path / "helpers.py"]
    lines = found[tmp_path / "train.py"].splitlines()
    assert lines[-2] == 'sharding_strategy, use_orig_params = options(os.environ["KIND"])'


SETTINGS = """\
import functools
import torch
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from blocks import Block

bf16 = MixedPrecision(param_dtype=torch.bfloat16)
options = {
    "auto_wrap_policy": functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block}
    ),
    "mixed_precision": bf16,
    "use_orig_params": True,
}
"""

BLOCKS = """\
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)
"""

IMPORTING = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from blocks import Block
from settings import options as shared

torch.cuda.set_device(0)
dist.init_process_group("nccl")
model = FSDP(nn.Sequential(Block(), Block()), **shared, device_id=0)
other = FSDP(nn.Sequential(Block()), **shared)
"""

USES = {
    "spread": "",
    "an item": "print(shared['use_orig_params'])\n",
    "an assignment": "shared['use_orig_params'] = False\n",
    "another call": "print(dict(**shared))\n",
    "an attribute": "import settings\nprint(settings.options)\n",
}


@pytest.mark.parametrize("use", list(USES.values()), ids=list(USES))
def test_a_dict_that_another_file_imports(tmp_path: Path, use: str) -> None:
    """The file imports the variables, or reads the items if it does something else with the dict."""
    texts = {"settings.py": SETTINGS, "blocks.py": BLOCKS, "train.py": IMPORTING + use}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = [tmp_path / name for name in texts]
    found = fix(Workspace(paths), [rule() for rule in all_rules()]).texts
    text = found[tmp_path / "train.py"]
    if use:
        assert '"mixed_precision": bf16' in found[tmp_path / "settings.py"]
        assert 'mp_policy = shared.get("mixed_precision") or MixedPrecisionPolicy()' in text
        assert 'should_shard = shared["auto_wrap_policy"]' in text
        assert text.endswith(use)
        return
    assert found[tmp_path / "settings.py"].splitlines()[-3:] == [
        "bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)",
        "auto_wrap_policy = lambda module: isinstance(module, Block)",
        "mixed_precision = bf16",
    ]
    assert "from settings import auto_wrap_policy, mixed_precision\n" in text
    assert text.splitlines()[-5:] == [
        "other = nn.Sequential(Block())",
        "for module in reversed(list(other.modules())):",
        "    if auto_wrap_policy(module):",
        "        fully_shard(module, mp_policy=mixed_precision)",
        "fully_shard(other, mp_policy=mixed_precision)",
    ]

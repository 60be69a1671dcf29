"""Functions that hand their arguments on to FSDP, and names of FSDP1 that other files import."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import HEAD, POLICY, migrated, plan

from fsdplint.diagnostics.finding import Fix, Safety
from fsdplint.edits.apply import apply
from fsdplint.interpreter import load
from fsdplint.migration.planner import plans_of

FORWARDING = """
def shard(*args, **kwargs):
    \"\"\"Shard a model.\"\"\"
    return FSDP(*args, **kwargs)
"""


def test_a_function_that_hands_its_arguments_on(tmp_path: Path) -> None:
    text = migrated(tmp_path, f"{FORWARDING}\n\nmodel = shard(Net(), {POLICY})\n")
    assert (
        text.strip()
        == textwrap.dedent("""
        model = Net()
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(model)
    """).strip()
    )


def test_a_function_of_another_file_that_hands_its_arguments_on(tmp_path: Path) -> None:
    script = HEAD[HEAD.index("class Block") :] + "model = shard(Net())\n"
    head = NAMES.replace("import functools", "import functools\nfrom helpers import seed, shard")
    helpers = f"{NAMES}\n{FORWARDING}\n\ndef seed():\n    torch.manual_seed(0)\n"
    found = _files(tmp_path, {"train.py": head + script, "helpers.py": helpers})
    assert "FSDP" not in found["helpers.py"] and "def shard" not in found["helpers.py"]
    assert "from helpers import seed\n" in found["train.py"]
    assert found["train.py"].endswith("model = fully_shard(Net())\n")


def test_arguments_of_two_calls(tmp_path: Path) -> None:
    body = """
        shared = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True)
        one = FSDP(Net(), **shared)
        other = FSDP(Net(), **shared)
    """
    lines = migrated(tmp_path, body).strip().splitlines()
    call = "fully_shard(Net(), reshard_after_forward=False)"
    assert lines == [f"one = {call}", f"other = {call}"]


NAMES = HEAD.partition("class Block")[0]


def _files(tmp_path: Path, texts: dict[str, str]) -> dict[str, str]:
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    program = load([tmp_path / name for name in texts])
    (found,) = plans_of(program)
    assert not found.blockers, [one.reason for one in found.blockers]
    fix = Fix("", Safety.SAFE, found.edits, found.imports, "g", found.maybe_unused_imports)
    applied = apply(program.files, [fix])
    assert not applied.broken
    return {Path(path).name: text for path, text in applied.texts.items()}


@pytest.mark.parametrize("imported", ["FSDP, nn, torch, os, dist", "*"])
def test_names_that_another_file_imports(tmp_path: Path, imported: str) -> None:
    script = HEAD[HEAD.index("class Block") :] + "model = FSDP(Net())\nmodel.clip_grad_norm_(1.0)\n"
    texts = {
        "train.py": f"from setup_names import {imported}\n\n\n{script}",
        "setup_names.py": "import os\nimport torch\nimport torch.distributed as dist\nimport torch.nn as nn\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
    }
    found = _files(tmp_path, texts)
    assert "FSDP" not in found["setup_names.py"] and "FSDP" not in found["train.py"]
    assert "from torch.distributed.fsdp import fully_shard\n" in found["train.py"]
    end = "model = fully_shard(Net())\nclip_grad_norm_(model.parameters(), 1.0)\n"
    assert found["train.py"].endswith(end)


def test_what_a_file_that_was_not_read_imports_stays(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    script = tmp_path / "train.py"
    script.write_text(
        HEAD + "class Api:\n    wrap = staticmethod(FSDP)\n\n\nmodel = Api.wrap(Net())\n", "utf-8"
    )
    (found,) = plans_of(load([script]))
    assert not found.blockers
    (tmp_path / "other.py").write_text("from train import Api\n\nprint(Api.wrap)\n", "utf-8")
    (found,) = plans_of(load([script]))
    assert found.blockers


def test_a_name_with_another_meaning_blocks(tmp_path: Path) -> None:
    body = """
        class Api:
            wrap = staticmethod(FSDP)


        def build(FSDP):
            return Api.wrap(FSDP)


        model = build(Net())
    """
    found, _ = plan(tmp_path, body)
    assert found.blockers

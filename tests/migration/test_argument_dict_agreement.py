"""`FSDP(net, **arguments)` migrates to the same statements as `FSDP(net, name=value)`."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import libcst as cst
import pytest
from forms import plan

ARGUMENTS = {
    "ignored_modules": "[net.blocks[0]]",
    "sync_module_states": "True",
    "device_id": "torch.cuda.current_device()",
    "cpu_offload": "CPUOffload(offload_params=True)",
    "mixed_precision": "MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)",
    "auto_wrap_policy": "ModuleWrapPolicy({Block})",
    "process_group": "group",
    "sharding_strategy": "ShardingStrategy.SHARD_GRAD_OP",
}
BEFORE = """\
torch.manual_seed(dist.get_rank())
group = dist.new_group([0, 1])
net = Net()
net.blocks[0].requires_grad_(False)
"""
AFTER = "model(torch.randn(2, 8)).mean().backward()\n"


MAKE = ("kwargs =", "from ", "import ", *(f"{name} =" for name in ("mesh", "mp_policy")))


def _statements(text: str) -> list[str]:
    """The statements of the module besides those that make and pass the arguments."""
    codes = [cst.Module([node]).code.strip() for node in cst.parse_module(text).body]
    rest = [code for code in codes if "fully_shard(" not in code and not code.startswith(MAKE)]
    rest = [code for code in rest if not code.startswith(("offload_policy =", "ignored_params ="))]
    return [code.replace('kwargs["mesh"]', "mesh") for code in rest]


@pytest.mark.parametrize("names", [*combinations(ARGUMENTS, 2)], ids=" ".join)
def test_same_statements(tmp_path: Path, names: tuple[str, str]) -> None:
    given = [f"{name}={ARGUMENTS[name]}" for name in names]
    _, named = plan(tmp_path, BEFORE + f"model = FSDP(net, {', '.join(given)})\n" + AFTER)
    items = ", ".join(f'"{name}": {ARGUMENTS[name]}' for name in names)
    spread = f"kwargs = {{{items}}}\nmodel = FSDP(net, **kwargs)\n"
    found, mapped = plan(tmp_path, BEFORE + spread + AFTER)
    assert named
    assert not found.blockers
    assert _statements(mapped) == _statements(named)


def test_a_frozen_part_that_is_ignored_keeps_its_own_values(tmp_path: Path) -> None:
    body = BEFORE + (
        'kwargs = {"ignored_modules": [net.blocks[0]]}\n'
        'kwargs["sync_module_states"] = True\n'
        "model = FSDP(net, **kwargs)\n"
    )
    _, after = plan(tmp_path, body + AFTER)
    assert "isinstance(parameter, DTensor)" in after

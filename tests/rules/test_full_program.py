"""Mistakes in a program that does much else."""

from __future__ import annotations

from pathlib import Path

import pytest
from full_program import BLOCKS, BUILT, GROUP, SHARDED, SHOWN, STEP, TRAINED, changed

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import all_rules

Change = tuple[str, str]


def found(tmp_path: Path, *changes: Change) -> set[str]:
    """The codes of the findings in the program with these changes."""
    path = tmp_path / "train.py"
    path.write_text(changed(*changes))
    return {one.rule.code for one in check(load([path]), [rule() for rule in all_rules()])}


def in_steps(code: str) -> Change:
    """A change: this code, indented by 16 columns, comes before the step of the optimizer."""
    return STEP, code + STEP


ON_META = '    with torch.device("meta"):\n        model = Decoder(32000, 512, 8, 8)\n'
PARAMETERS = "    for p in model.parameters():\n"
IN_STEP = "                for p in model.parameters():\n"
AVERAGE = "    average = [p.detach().clone() for p in model.parameters()]\n"
SWAP = "        for value, p in zip(average, model.parameters()):\n            p.data = value\n"


def test_the_program_has_no_mistake(tmp_path: Path) -> None:
    assert found(tmp_path) == set()


@pytest.mark.parametrize(
    "code, changes",
    [
        ("FSDP144", [(SHARDED, PARAMETERS + "        p.data = torch.randn(p.shape) * 0.02\n")]),
        (
            "FSDP144",
            [(SHARDED, "    model.head.weight.data = torch.zeros_like(model.head.weight)\n")],
        ),
        (
            "FSDP144",
            [
                (
                    SHARDED,
                    "    for block in model.blocks:\n        w = block.mlp[0].weight\n"
                    "        w.data = w.data * 0.5\n",
                )
            ],
        ),
        ("FSDP144", [in_steps(IN_STEP + "                    p.data = p.data * 0.999\n")]),
        (
            "FSDP144",
            [
                in_steps(
                    IN_STEP + "                    if p.grad is not None:\n"
                    "                        p.grad.data = p.grad.data / world_size\n"
                )
            ],
        ),
        ("FSDP144", [(SHARDED, AVERAGE), (TRAINED, SWAP)]),
        (
            "FSDP144",
            [
                (SHARDED, AVERAGE),
                (
                    TRAINED,
                    "        evaluate(model, valid_loader, device)\n" + SWAP,
                ),
            ],
        ),
        ("FSDP119", [(SHARDED, PARAMETERS + "        p.register_hook(lambda g: g * 2)\n")]),
        ("FSDP119", [(SHARDED, "    model.embed.weight.register_hook(lambda g: g * 2)\n")]),
        (
            "FSDP143",
            [
                (
                    SHARDED,
                    "    model.unshard()\n    with torch.no_grad():\n"
                    "        model.head.weight.mul_(0.02)\n    model.reshard()\n",
                )
            ],
        ),
        (
            "FSDP143",
            [
                (
                    SHARDED,
                    "    for block in model.blocks:\n        block.unshard()\n"
                    "        with torch.no_grad():\n            for p in block.parameters():\n"
                    "                p.mul_(0.02)\n        block.reshard()\n",
                )
            ],
        ),
        ("FSDP422", [(SHARDED, "    model.bfloat16()\n")]),
        ("FSDP422", [(SHARDED, "    model.to(torch.half)\n")]),
        ("FSDP422", [("    start, best", "    model.to(dtype=torch.bfloat16)\n    start, best")]),
        ("FSDP134", [(BUILT, ON_META), (SHARDED, "    model.to_empty(device=device)\n")]),
        (
            "FSDP134",
            [
                (BUILT, ON_META),
                (SHARDED, "    model.to_empty(device=device)\n" + AVERAGE),
                in_steps(
                    "                for value, p in zip(average, model.parameters()):\n"
                    "                    value.lerp_(p.detach(), 0.01)\n"
                ),
            ],
        ),
        ("FSDP501", [(BLOCKS, BLOCKS + "            if x.mean() > 5:\n                break\n")]),
        (
            "FSDP501",
            [(BLOCKS, BLOCKS + "            if x.mean() > 5:\n                return x\n")],
        ),
        ("FSDP508", [(SHOWN, "loss.detach().cpu()")]),
        ("FSDP508", [(SHOWN, 'loss.detach().to("cpu") / 2')]),
        ("FSDP508", [(SHOWN, 'torch.stack([loss.detach()]).mean().to(torch.device("cpu"))')]),
    ],
)
def test_a_mistake_is_found(tmp_path: Path, code: str, changes: list[Change]) -> None:
    assert found(tmp_path, *changes) == {code}


@pytest.mark.parametrize(
    "changes",
    [
        [(BUILT, BUILT + PARAMETERS + "        p.data = torch.randn(p.shape) * 0.02\n")],
        [in_steps(IN_STEP + "                    p.data *= 0.999\n")],
        [in_steps(IN_STEP + "                    p.data = p.data.mul_(0.999)\n")],
        [in_steps(IN_STEP + "                    p.data.mul_(0.999)\n")],
        [in_steps(IN_STEP + '                    p.data = getattr(p.data, "mul_")(0.999)\n')],
        [in_steps(IN_STEP + "                    p.data = (lambda: p.data.mul_(0.999))()\n")],
        [in_steps(IN_STEP + "                    p.data = torch.mul(p.data, 2, out=p.data)\n")],
        [in_steps(IN_STEP + "                    p.data = unknown(p.data)\n")],
        [in_steps(IN_STEP + "                    p.grad = p.grad / 2\n")],
        [in_steps(IN_STEP + "                    p.grad.data.div_(2)\n")],
        [(SHARDED, PARAMETERS + "        p.data = p.data.float()\n")],
        [
            (
                SHARDED,
                PARAMETERS
                + "        p.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2))\n",
            )
        ],
        [
            (
                SHARDED,
                "    model.unshard()\n    with torch.no_grad():\n"
                "        model.blocks[0].mlp[0].weight.mul_(0.02)\n    model.reshard()\n",
            )
        ],
        [
            (
                SHARDED,
                "    model.unshard()\n    with torch.no_grad():\n"
                "        model.head.weight.mul_(0.02)\n"
                "        model(torch.zeros(1, 8, dtype=torch.long, device=device))\n"
                "    model.reshard()\n",
            )
        ],
        [
            (BUILT, ON_META),
            (
                SHARDED,
                "    model.to_empty(device=device)\n"
                "    for module in model.modules():\n"
                '        if hasattr(module, "reset_parameters"):\n'
                "            module.reset_parameters()\n",
            ),
        ],
        [
            (BUILT, ON_META),
            (
                SHARDED,
                "    model.to_empty(device=device)\n"
                '    given = torch.load("start.pt")\n'
                "    with torch.no_grad():\n"
                "        for name, p in model.named_parameters():\n"
                "            p.copy_(given[name])\n",
            ),
        ],
        [(SHARDED, "    model.bfloat16()\n    model.float()\n")],
        [
            (SHARDED, "    model.bfloat16()\n"),
            ("param_dtype=torch.bfloat16, reduce", "reduce"),
        ],
        [
            (
                "    dist.destroy",
                "    model.bfloat16()\n    save(model, optimizer, 0)\n    dist.destroy",
            )
        ],
        [
            (BUILT, ON_META),
            (
                SHARDED,
                "    model.to_empty(device=device)\n"
                + PARAMETERS
                + "        p.detach().normal_(0, 0.02)\n",
            ),
        ],
        [
            (BUILT, ON_META),
            (
                SHARDED,
                "    model.to_empty(device=device)\n"
                + PARAMETERS
                + "        p.detach().view(-1).normal_(0, 0.02)\n",
            ),
        ],
        [(BLOCKS, BLOCKS + "            if ids.shape[1] > 5:\n                break\n")],
        [(SHOWN, "loss.detach().cpu()"), (GROUP, 'init_process_group("cpu:gloo,cuda:nccl")')],
        [(SHOWN, "loss.detach().cpu()"), (GROUP, "init_process_group()")],
        [(SHOWN, "loss.detach().cpu().to(device)")],
        [
            (SHOWN, "loss.detach().cpu()"),
            ("op=dist.ReduceOp.AVG", "group=on_cpu"),
            (SHARDED, '    on_cpu = dist.new_group(backend="gloo")\n'),
        ],
        [
            (
                SHARDED,
                "    if dist.get_rank() == 0:\n"
                "        alone = dist.new_group([0], use_local_synchronization=True)\n",
            )
        ],
    ],
)
def test_right_code_is_not_reported(tmp_path: Path, changes: list[Change]) -> None:
    assert found(tmp_path, *changes) == set()

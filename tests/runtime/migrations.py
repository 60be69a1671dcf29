"""Hand migrations of fixtures, as replacements in their text, and ways to get them wrong."""

from __future__ import annotations

from pathlib import Path

from fixture_runs import OUT, Case

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

_FLAT = (
    (
        "from torch.distributed.fsdp import (\n"
        "    FullStateDictConfig,\n"
        "    FullyShardedDataParallel as FSDP,\n"
        "    ShardingStrategy,\n"
        "    StateDictType,\n"
        ")\n"
        "from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy\n",
        "from torch.distributed.checkpoint.state_dict import StateDictOptions, "
        "get_model_state_dict\n"
        "from torch.distributed.fsdp import fully_shard\n",
    ),
    (
        "wrap_policy = functools.partial(transformer_auto_wrap_policy, "
        "transformer_layer_cls={Block})\n"
        "model = FSDP(\n"
        "    model,\n"
        "    auto_wrap_policy=wrap_policy,\n"
        "    sharding_strategy=ShardingStrategy.FULL_SHARD,\n"
        "    device_id=device,\n"
        ")\n",
        "for block in model.blocks:\n    fully_shard(block)\nfully_shard(model)\n",
    ),
    (
        "grad_norm = model.clip_grad_norm_(MAX_NORM)",
        "grad_norm = nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM).full_tensor()",
    ),
    (
        "save_policy = FullStateDictConfig(rank0_only=True, offload_to_cpu=False)\n"
        "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save_policy):\n"
        "    full_state = model.state_dict()\n",
        "full_state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))\n",
    ),
)


def replaced(text: str, pairs: tuple[tuple[str, str], ...]) -> str:
    """The text with each of these replaced; each must be there."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def flat_before() -> str:
    return (FIXTURES / "fsdp1" / "flat_script.py").read_text(encoding="utf-8")


def flat_after() -> str:
    return replaced(flat_before(), _FLAT)


_SHARD = "for block in model.blocks:\n    fully_shard(block)\nfully_shard(model)\n"
_CLIP = "nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM).full_tensor()"
_SAVE = "full_state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"
_BF16 = "MixedPrecisionPolicy(param_dtype=torch.bfloat16)"

# name: (replacements in the migrated program, what the comparison must complain about)
SABOTAGED = {
    "clipping lost": (
        ((_CLIP, "torch.tensor(0.0)"),),
        "gradient norms at the optimizer step",
    ),
    "optimizer before sharding": (
        ((_SHARD, ""), ("weight_decay=0.01)\n", "weight_decay=0.01)\n" + _SHARD)),
        "steps",
    ),
    "one block not sharded": (
        (("for block in model.blocks:", "for block in model.blocks[1:]:"),),
        "sharded modules",
    ),
    "sync left off": (
        (
            (
                "fully_shard(model)\n",
                "fully_shard(model)\nmodel.set_requires_gradient_sync(False)\n",
            ),
            (_CLIP, "torch.tensor(0.0)"),
        ),
        "steps",
    ),
    "another learning rate": ((("lr=3e-3", "lr=2e-3"),), "parameter groups"),
    "another weight decay": ((("weight_decay=0.01", "weight_decay=0.02"),), "parameter groups"),
    "a parameter lost by the optimizer": (
        (("AdamW(model.parameters()", "AdamW(list(model.parameters())[:-1]"),),
        "parameters",
    ),
    "averaged twice": (
        (("loss.backward()", "(loss / dist.get_world_size()).backward()"),),
        "losses",
    ),
    "another type": (
        (
            ("import fully_shard", "import MixedPrecisionPolicy, fully_shard"),
            ("fully_shard(block)", f"fully_shard(block, mp_policy={_BF16})"),
            ("fully_shard(model)", f"fully_shard(model, mp_policy={_BF16})"),
        ),
        "mixed precision",
    ),
    "weights differ on the ranks": (
        (("torch.manual_seed(0)", "torch.manual_seed(rank)"),),
        "losses",
    ),
    "the checkpoint of one rank": (((_SAVE, "full_state = model.state_dict()"),), "checkpoint"),
    "an empty checkpoint": (((_SAVE, "full_state = {}"),), "checkpoint"),
    "no checkpoint": ((("    torch.save(", "    (lambda *_: None)("),), "checkpoint"),
    "a step left out": ((("    optimizer.step()\n", "    step and optimizer.step()\n"),), "steps"),
    "stepped twice": (
        (("    optimizer.step()\n", "    optimizer.step()\n    optimizer.step()\n"),),
        "steps",
    ),
    "gradients kept": (
        (("    optimizer.zero_grad()\n", "    step or optimizer.zero_grad()\n"),),
        "gradient norms",
    ),
}

# Ways to get the migrations of other fixtures wrong: the case that is run, the replacements in its
# migrated text, what the comparison must complain about.
SCALED = Case("fsdp1_cuda/scaler_accumulation.py", ())
RESUMED = Case("fsdp1/argparse_functions.py", (*OUT, "--stop-after", "1"), (*OUT, "--resume"))
GROUPED = Case("fsdp1/size_policy.py")
SABOTAGED_FIXTURES = {
    "sync left on": (
        SCALED,
        (("        model.set_requires_gradient_sync(False)\n", ""),),
        "gradient reductions",
    ),
    "weights not broadcast": (
        SCALED,
        (
            (
                "  set_model_state_dict(\n    model, full_state, options=StateDictOptions("
                "full_state_dict=True, broadcast_from_rank0=True)\n  )\n",
                "",
            ),
        ),
        "losses",
    ),
    "not unscaled": (SCALED, (("    scaler.unscale_(optimizer)\n", ""),), "gradient norms"),
    "scheduler stepped twice": (
        RESUMED,
        (("        scheduler.step()\n", "        scheduler.step()\n        scheduler.step()\n"),),
        "parameter groups",
    ),
    "the optimizer's state not loaded back": (
        RESUMED,
        (
            (
                "    set_optimizer_state_dict(\n"
                "        model, optimizer, separate_steps(checkpoint['optimizer']), options=options\n"
                "    )\n",
                "",
            ),
        ),
        "parameters",
    ),
    "the model's state not loaded back": (
        RESUMED,
        (("    set_model_state_dict(model, checkpoint['model'], options=options)\n", ""),),
        "losses",
    ),
    "the states of another step": (
        RESUMED,
        (("    return checkpoint['epoch'] + 1\n", "    return checkpoint['epoch']\n"),),
        "steps",
    ),
    "parameter groups lost": (
        GROUPED,
        (("parameter_groups(model, args.weight_decay)", "model.parameters()"),),
        "parameter groups",
    ),
}

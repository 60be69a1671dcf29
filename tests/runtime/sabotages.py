"""Migrations of `sabotage/before.py`: right ones, and ones with a single planted mistake.

Each is a few replacements in `sabotage/after.py`. All of them together are run by
`python tests/sabotage_verdicts.py`, which writes `sabotage/verdicts.md`; the tests run a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent / "sabotage"
PROVEN, REFUTED, OTHER = "proven", "refuted", "other layout"

Edits = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Setup:
    """How the program is run; resumed: it goes on from what the program before has saved."""

    args: str = ""
    ranks: int = 2
    resumed: bool = False


@dataclass(frozen=True)
class Migration:
    """A migration and what a proof has to say of it.

    complaint: how the name of a comparison begins that has to fail.
    """

    setup: Setup
    edits: Edits = ()
    verdict: str = PROVEN
    complaint: str = ""


FULL = Setup()
BF16 = Setup("--precision bf16")
ACCUMULATED = Setup("--precision bf16 --accumulate 2")
FP16 = Setup("--precision fp16")
KEPT = Setup("--strategy SHARD_GRAD_OP")
REPLICATED = Setup("--strategy NO_SHARD")
FROZEN = Setup("--freeze")
FOUR = Setup("--steps 2", ranks=4)
HYBRID = Setup("--strategy HYBRID_SHARD --steps 2", ranks=4)
RESUMED = Setup("--resume --steps 2", resumed=True)

_MESH = 'mesh = init_device_mesh("cpu", (ranks,))'
_PAIRS = 'mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("dp", "fsdp"))'
_BLOCK = "fully_shard(block, mesh=mesh, mp_policy=inner, reshard_after_forward=not keep)"
_BLOCKS = f"    for block in model.blocks:\n        {_BLOCK}\n"
_ROOT = "fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)"
_POLICY = "policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)"
_CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 0.5)"
_SAVED = '{"model": weights, "optimizer": states, "scheduler": scheduler.state_dict()}'
_LOADED = 'set_model_state_dict(model, saved["model"], options=options)'
_OPTIMIZER = 'set_optimizer_state_dict(model, optimizer, saved["optimizer"], options=options)'

RIGHT: dict[str, Migration] = {
    "in fp32": Migration(FULL),
    "in bf16": Migration(BF16),
    "in fp16 with a scaler": Migration(FP16),
    "accumulated": Migration(ACCUMULATED),
    "gathered until the backward": Migration(KEPT),
    "accumulated, gathered until the backward": Migration(
        Setup("--strategy SHARD_GRAD_OP --accumulate 2 --precision bf16")
    ),
    "replicated": Migration(REPLICATED),
    "partly frozen": Migration(FROZEN),
    "partly frozen in bf16": Migration(Setup("--freeze --precision bf16")),
    "on four ranks": Migration(FOUR),
    "on three ranks": Migration(Setup("--steps 2", ranks=3)),
    "hybrid": Migration(HYBRID),
    "hybrid, gathered until the backward": Migration(
        Setup("--strategy _HYBRID_SHARD_ZERO2 --steps 2 --precision bf16", ranks=4)
    ),
    "gone on from a checkpoint": Migration(RESUMED),
    "the mesh by default": Migration(BF16, (("mesh=mesh, ", ""),)),
    "the root by default": Migration(BF16, ((", reshard_after_forward=False)", ")"),)),
    "inner modules found by their class": Migration(
        BF16,
        (
            (
                "for block in model.blocks:",
                "for block in [m for m in reversed(list(model.modules())) if isinstance(m, Block)]:",
            ),
        ),
    ),
    "the optimizer without foreach": Migration(FULL, (("eps=1e-6", "eps=1e-6, foreach=False"),)),
    "clipped as a list": Migration(
        FULL, (("(model.parameters(), 0.5)", "(list(model.parameters()), max_norm=0.5)"),)
    ),
    "states from whole tensors": Migration(
        FULL,
        (
            (
                "weights = get_model_state_dict(model, options=options)",
                "weights = {name: value.full_tensor() if hasattr(value, 'full_tensor') else value "
                "for name, value in model.state_dict().items()}",
            ),
        ),
    ),
}

# What is sharded over which ranks, and when it is gathered.
_LAYOUT: dict[str, Migration] = {
    "a mesh that shards nothing": Migration(
        BF16,
        ((_MESH, 'mesh = init_device_mesh("cpu", (ranks, 1), mesh_dim_names=("dp", "fsdp"))'),),
        OTHER,
        "placement",
    ),
    "hybrid in place of full": Migration(FOUR, ((_MESH, _PAIRS),), OTHER, "placement"),
    "full in place of hybrid": Migration(
        HYBRID, (('if "HYBRID" in args.strategy', "if False"),), OTHER, "placement"
    ),
    "replicated in place of hybrid": Migration(
        HYBRID, (("(2, ranks // 2)", "(ranks, 1)"),), OTHER, "placement"
    ),
    "the dimensions of the mesh exchanged": Migration(
        HYBRID,
        (
            (
                _PAIRS,
                'mesh = dist.DeviceMesh("cpu", [[0, 2], [1, 3]], mesh_dim_names=("dp", "fsdp"))',
            ),
        ),
        OTHER,
        "placement",
    ),
    "sharded in place of replicated": Migration(
        REPLICATED, (('if args.strategy == "NO_SHARD"', "if False"),), OTHER, "placement"
    ),
    "sharded over half of the ranks": Migration(
        FOUR, ((_MESH, _PAIRS + '["fsdp"]'),), REFUTED, "losses"
    ),
    "only the blocks over half of the ranks": Migration(
        FOUR, ((_BLOCK, _BLOCK.replace("=mesh", f"={_PAIRS[7:]}['fsdp']")),), REFUTED, "it raised"
    ),
    "only the root": Migration(FULL, ((_BLOCKS, ""),), OTHER, "sharded modules"),
    "only the blocks": Migration(
        FULL, ((f"return {_ROOT}", "return model"),), REFUTED, "it raised"
    ),
    "a block missing": Migration(
        FULL,
        (("in model.blocks:\n        fully", "in model.blocks[1:]:\n        fully"),),
        OTHER,
        "sharded modules",
    ),
    "a part of a block by itself": Migration(
        FULL,
        (
            (
                f"        {_BLOCK}",
                f"        {_BLOCK.replace('(block', '(block.up')}\n        {_BLOCK}",
            ),
        ),
        OTHER,
        "sharded modules",
    ),
    "two blocks as one": Migration(
        FULL,
        ((_BLOCKS, _BLOCKS.replace("model.blocks", "[list(model.blocks[:2]), model.blocks[2]]")),),
        OTHER,
        "sharded modules",
    ),
    "not gathered until the backward": Migration(
        KEPT, (("not keep", "True"),), OTHER, "parameters between"
    ),
    "gathered until the backward": Migration(
        FULL, (("not keep", "False"),), OTHER, "parameters between"
    ),
    "the root sharded after the forward": Migration(
        FULL,
        (("reshard_after_forward=False", "reshard_after_forward=True"),),
        OTHER,
        "parameters between",
    ),
    "over fewer ranks after the forward": Migration(
        FOUR, (("not keep", "2"),), OTHER, "parameters between"
    ),
    "gathered after the backward": Migration(
        FULL,
        (
            (
                "    optimizer = torch",
                "    model.set_reshard_after_backward(False)\n    optimizer = torch",
            ),
        ),
        REFUTED,
        "losses",
    ),
    "a trained part ignored": Migration(
        FULL,
        (
            (
                _ROOT,
                _ROOT.replace("model, ", "model, ignored_params=set(model.head.parameters()), "),
            ),
        ),
        REFUTED,
        "it raised",
    ),
    "a frozen part ignored": Migration(
        FROZEN,
        ((_ROOT, _ROOT.replace("model, ", "model, ignored_params={model.embed.weight}, ")),),
        OTHER,
        "placement",
    ),
    "offloaded to the CPU": Migration(
        FULL,
        (
            ("import MixedPrecisionPolicy,", "import CPUOffloadPolicy, MixedPrecisionPolicy,"),
            (
                _BLOCK,
                _BLOCK.replace("mesh=", "offload_policy=CPUOffloadPolicy(pin_memory=False), mesh="),
            ),
        ),
        OTHER,
        "placement",
    ),
    "gradients reduced in each backward": Migration(
        ACCUMULATED, (("gradient_sync(last)", "gradient_sync(True)"),), OTHER, "gradient reductions"
    ),
    "gradients never reduced": Migration(
        FULL, (("gradient_sync(last)", "gradient_sync(False)"),), REFUTED, ""
    ),
}

# What parameters, inputs, buffers and gradients are computed and kept in.
_TYPES: dict[str, Migration] = {
    "computed in fp32": Migration(
        BF16, (("param_dtype=dtype", "param_dtype=None"),), REFUTED, "mixed precision"
    ),
    "reduced in bf16": Migration(
        BF16, (("reduce_dtype=torch.float32", "reduce_dtype=dtype"),), REFUTED, "mixed precision"
    ),
    "the root alone in fp32": Migration(
        BF16, ((_POLICY, "policy = MixedPrecisionPolicy()"),), REFUTED, "it raised"
    ),
    "outputs cast": Migration(
        BF16, ((_POLICY, _POLICY[:-1] + ", output_dtype=torch.float32)"),), REFUTED, "types of"
    ),
    "inputs of blocks cast": Migration(
        BF16, ((", cast_forward_inputs=False", ""),), REFUTED, "types of"
    ),
    "a buffer cast": Migration(
        BF16,
        (("    model = shard", "    model.scale = model.scale.bfloat16()\n    model = shard"),),
        REFUTED,
        "parameters",
    ),
    "the weights cast": Migration(
        BF16,
        (("    model = shard", "    model.bfloat16()\n    model = shard"),),
        REFUTED,
        "parameters",
    ),
}

_TRAINING: dict[str, Migration] = {
    "clipped at 0.505": Migration(
        BF16, (("parameters(), 0.5)", "parameters(), 0.505)"),), REFUTED, "clipping arguments"
    ),
    "clipped by another norm": Migration(
        BF16,
        (("parameters(), 0.5)", "parameters(), 0.5, norm_type=1.0)"),),
        REFUTED,
        "clipping arguments",
    ),
    "clipped by value": Migration(
        BF16, ((_CLIP, "nn.utils.clip_grad_value_(model.parameters(), 0.5)"),), REFUTED, ""
    ),
    "not clipped": Migration(BF16, ((_CLIP, "pass"),), REFUTED, "gradient norms at"),
    "a learning rate of 0.0101": Migration(
        BF16, (("lr=0.01", "lr=0.0101"),), REFUTED, "parameter groups"
    ),
    "another beta": Migration(BF16, (("0.95", "0.951"),), REFUTED, "parameter groups"),
    "another epsilon": Migration(BF16, (("1e-6", "1.1e-6"),), REFUTED, "parameter groups"),
    "another decay": Migration(
        BF16, (('"weight_decay": 0.1', '"weight_decay": 0.101'),), REFUTED, "parameter groups"
    ),
    "norms decayed": Migration(BF16, ((' and "norm" not in name', ""),), REFUTED, "optimizers"),
    "another optimizer": Migration(
        BF16, (("torch.optim.AdamW", "torch.optim.Adam"),), REFUTED, "optimizers"
    ),
    "the optimizer before sharding": Migration(
        FULL,
        (
            ("    model = shard(model, args)\n", ""),
            ("    scheduler =", "    model = shard(model, args)\n    scheduler ="),
        ),
        REFUTED,
        "it raised",
    ),
    "a longer schedule": Migration(BF16, (("T_max=20", "T_max=21"),), REFUTED, "parameter groups"),
    "the schedule not stepped": Migration(
        BF16, (("scheduler.step()", "pass"),), REFUTED, "parameter groups"
    ),
    "losses summed": Migration(
        ACCUMULATED, (("loss / args.accumulate", "loss"),), REFUTED, "losses"
    ),
    "one backward too few": Migration(
        ACCUMULATED,
        (("range(args.accumulate)", "range(args.accumulate - 1, args.accumulate)"),),
        REFUTED,
        "losses",
    ),
    "one seed for all ranks": Migration(
        FULL, (("manual_seed(100 + rank)", "manual_seed(100)"),), REFUTED, "losses"
    ),
    "seeded too early": Migration(
        FULL,
        (
            ("    torch.manual_seed(100 + rank)\n", ""),
            (
                "    model = shard",
                "    torch.manual_seed(100 + rank)\n    torch.rand(1)\n    model = shard",
            ),
        ),
        REFUTED,
        "losses",
    ),
    "the frozen part trained": Migration(
        FROZEN, (("requires_grad_(False)", "requires_grad_(True)"),), REFUTED, "trained parameters"
    ),
    "another average": Migration(FULL, ((".float(), 0.1)", ".float(), 0.11)"),), REFUTED, ""),
    "no average": Migration(
        FULL, (("value.lerp_(weights[name].float(), 0.1)", "pass"),), REFUTED, ""
    ),
    "losses not scaled": Migration(
        FP16, (('args.precision == "fp16"', "False"),), REFUTED, "loss scale"
    ),
    "another scale": Migration(FP16, (("256.0", "128.0"),), REFUTED, "loss scale"),
    "a scale that grows later": Migration(
        FP16, (("growth_interval=2", "growth_interval=3"),), REFUTED, "loss scale"
    ),
    "gradients not unscaled": Migration(
        FP16, (("scaler.unscale_(optimizer)", "pass"),), REFUTED, ""
    ),
}

_STATES: dict[str, Migration] = {
    "a rank's part saved": Migration(
        FULL,
        (
            (
                _SAVED,
                _SAVED.replace(
                    "weights",
                    "{n: v.to_local() if hasattr(v, 'to_local') else v for n, v in model.state_dict().items()}",
                ),
            ),
        ),
        REFUTED,
        "checkpoint",
    ),
    "half of the weights saved": Migration(
        FULL,
        ((_SAVED, _SAVED.replace("weights", "dict(list(weights.items())[::2])")),),
        REFUTED,
        "checkpoint",
    ),
    "the weights saved in half precision": Migration(
        BF16,
        ((_SAVED, _SAVED.replace("weights", "{n: v.bfloat16() for n, v in weights.items()}")),),
        REFUTED,
        "checkpoint",
    ),
    "no optimizer state saved": Migration(
        FULL, ((_SAVED, _SAVED.replace("states", "{}")),), REFUTED, "checkpoint"
    ),
    "no schedule saved": Migration(
        FULL, (('"scheduler": scheduler.state_dict()', '"scheduler": None'),), REFUTED, "checkpoint"
    ),
    "the average saved as the weights": Migration(
        FULL, (('"model": weights', '"model": average.state_dict()'),), REFUTED, "checkpoint"
    ),
    "the step before saved": Migration(
        FULL, (("first + args.steps}", "first + args.steps - 1}"),), REFUTED, "checkpoint"
    ),
    "nothing saved": Migration(
        FULL, (("        torch.save(", "        (lambda *_: None)("),), REFUTED, "checkpoints"
    ),
    "the weights of rank 1 saved": Migration(
        FULL,
        (
            (
                "    if rank == 0:\n        saved = {",
                "    weights = {n: v + rank for n, v in weights.items()}\n    if rank == 1:\n        saved = {",
            ),
        ),
        REFUTED,
        "checkpoint",
    ),
    "weights not loaded": Migration(RESUMED, ((_LOADED, "pass"),), REFUTED, "losses"),
    "a key not loaded": Migration(
        RESUMED,
        (
            (
                _LOADED,
                'saved["model"].pop("head.weight")\n    options.strict = False\n    ' + _LOADED,
            ),
        ),
        REFUTED,
        "losses",
    ),
    "optimizer state not loaded": Migration(
        RESUMED, ((_OPTIMIZER, "pass"),), REFUTED, "optimizer state"
    ),
    "the optimizer built anew after loading": Migration(
        RESUMED,
        (
            (
                "    torch.manual_seed(100",
                "    optimizer = torch.optim.AdamW(groups(model), lr=0.01, betas=(0.9, 0.95), eps=1e-6)\n    torch.manual_seed(100",
            ),
        ),
        REFUTED,
        "",
    ),
    "the schedule not loaded": Migration(
        RESUMED,
        (('scheduler.load_state_dict(saved["scheduler"])', "pass"),),
        REFUTED,
        "parameter groups",
    ),
    "the average not loaded": Migration(
        RESUMED, (('average.load_state_dict(saved["average"])', "pass"),), REFUTED, ""
    ),
    "begun anew": Migration(RESUMED, (('first = saved["step"]', "pass"),), REFUTED, "losses"),
}

SABOTAGED = {**_LAYOUT, **_TYPES, **_TRAINING, **_STATES}

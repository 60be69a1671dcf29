"""FSDP221: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good
from fsdplint.registry.rule import Rule
from fsdplint.trace import FrameworkConfigured, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

WHY_NOT = "Accelerate is not installed for the tests"
TRAIN = """\

for batch in loader:
    loss = model(batch).pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
"""
HEAD = """\
import functools

import torch
import torch.nn as nn
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.linear(x))


"""
MODEL = """\
accelerator = Accelerator(fsdp_plugin=plugin)
model = nn.Sequential(Block(), Block())
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
LINES = (
    HEAD
    + """\
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
plugin = FullyShardedDataParallelPlugin(  # <- FSDP221
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    auto_wrap_policy=policy,
    cpu_offload=CPUOffload(offload_params=True),
    mixed_precision_policy=MixedPrecision(param_dtype=torch.bfloat16),
    use_orig_params=True,  # needed by the optimizer
    state_dict_type="FULL_STATE_DICT",
)
"""
    + MODEL
    + TRAIN
)
ONE_LINE = (
    HEAD.replace("import functools\n\n", "")
    .replace(
        "from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy\n", ""
    )
    .replace("from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy\n", "")
    + """\
plugin = FullyShardedDataParallelPlugin(use_orig_params=True, sync_module_states=True)  # <- FSDP221
"""
    + MODEL
    + TRAIN
)
APART = ONE_LINE.replace(
    "optimizer = torch.optim.AdamW(model.parameters())\n",
    "model = accelerator.prepare(model)\noptimizer = torch.optim.AdamW(model.parameters())\n",
).replace(
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    "optimizer, loader = accelerator.prepare(optimizer, loader)",
)
HYBRID = ONE_LINE.replace("use_orig_params=True", 'sharding_strategy="HYBRID_SHARD"')
FSDP2 = ONE_LINE.replace("use_orig_params=True, sync_module_states=True", "fsdp_version=2").replace(
    "  # <- FSDP221", ""
)
ENVIRONMENT = ONE_LINE.replace(
    "use_orig_params=True, sync_module_states=True", "activation_checkpointing=True"
).replace("  # <- FSDP221", "")
OWN = """\
class FullyShardedDataParallelPlugin:
    def __init__(self, use_orig_params):
        self.use_orig_params = use_orig_params


plugin = FullyShardedDataParallelPlugin(use_orig_params=True)
"""


class AcceleratePlugin(Rule):
    """Accelerate's `FullyShardedDataParallelPlugin` is made for FSDP1.

    ## What it does
    Finds calls of the plugin with `fsdp_version=1`, or without a version and with arguments that only FSDP1 reads.

    ## Why is this bad?
    FSDP1 is no longer developed, and what is new in Accelerate is for FSDP2. With `fsdp_version=2` alone some of
    FSDP1's arguments raise errors (`forward_prefetch`, `MixedPrecision`, strategies), and two things go wrong without
    one: a wrapping policy that is no name shards nothing but the whole model, and state dicts are sharded by default.

    ## Fix safety
    Safe where the arguments that stay mean the same. `transformer_auto_wrap_policy` with classes becomes their names
    in `transformer_cls_names_to_wrap`. Unsafe where rank 0's weights were sent to the other ranks and are not any
    longer (`sync_module_states` without `cpu_ram_efficient_loading`), with `activation_checkpointing` (the random
    numbers of a recomputed layer are others: dropout in it gives wrong gradients), where buffers were cast, and where
    full state dicts were only the default.

    Nothing is changed where a strategy replicates (`NO_SHARD`, hybrid ones, which need a mesh in the Accelerator),
    where a policy is any other, and where the program gives `prepare` a model without its optimizer, or several
    models: Accelerate's FSDP2 refuses that.

    Seen with Accelerate 1.15.0 and torch 2.13.0 on two CPU ranks: a program with SHARD_GRAD_OP, bf16 and
    `transformer_auto_wrap_policy` had the same losses before and after, gradient norms within 1e-7, and the same
    layers sharded; `prepare(model)` alone raised a ValueError. The tests of this rule run nothing of it.

    ## Since
    Accelerate 1.7 and torch 2.6.

    ## References
    - https://huggingface.co/docs/accelerate/concept_guides/fsdp1_vs_fsdp2
    """

    code = "FSDP221"
    name = "accelerate-plugin"
    severity = Severity.INFO
    fixable = Safety.SAFE
    fix_since = "2.6"
    bad = (
        Bad(
            LINES,
            runs=False,
            why_not=WHY_NOT,
            changes=(
                ("import functools\n\n", ""),
                (
                    "import CPUOffload, MixedPrecision, ShardingStrategy\n"
                    "from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy\n",
                    "import MixedPrecisionPolicy\n",
                ),
                (
                    """\
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
plugin = FullyShardedDataParallelPlugin(
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    auto_wrap_policy=policy,
    cpu_offload=CPUOffload(offload_params=True),
    mixed_precision_policy=MixedPrecision(param_dtype=torch.bfloat16),
    use_orig_params=True,  # needed by the optimizer
""",
                    """\
plugin = FullyShardedDataParallelPlugin(
    fsdp_version=2,
    reshard_after_forward=False,
    auto_wrap_policy="transformer_based_wrap",
    transformer_cls_names_to_wrap=["Block"],
    cpu_offload=True,
    mixed_precision_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
""",
                ),
            ),
        ),
        Bad(
            ONE_LINE,
            runs=False,
            why_not=WHY_NOT,
            changes=(
                (
                    "use_orig_params=True, sync_module_states=True",
                    'fsdp_version=2, state_dict_type="FULL_STATE_DICT"',
                ),
            ),
        ),
        Bad(APART, runs=False, why_not=WHY_NOT),
        Bad(HYBRID, runs=False, why_not=WHY_NOT),
    )
    good = (
        Good(FSDP2, why="FSDP2", runs=False),
        Good(ENVIRONMENT, why="the environment says which FSDP it is", runs=False),
        Good(OWN, why="a class of the project"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        from fsdplint.migration.frameworks.versions import is_fsdp1_plugin

        for event in trace.of(FrameworkConfigured):
            if event.framework == "accelerate" and is_fsdp1_plugin(event.options):
                yield self.finding(
                    event,
                    "this plugin of Accelerate is one for FSDP1",
                    help="Give it `fsdp_version=2` (Accelerate 1.7), with the arguments of FSDP2.",
                )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.migration.frameworks.plugin import PluginChange
        from fsdplint.migration.frameworks.prepared import obstacles
        from fsdplint.migration.frameworks.versions import (
            ACCELERATE,
            same_options,
            version_obstacle,
        )
        from fsdplint.source.source import NodeSite

        site, event = finding.site, finding.events[0]
        if not isinstance(site, NodeSite) or not isinstance(site.node, cst.Call):
            return None
        assert isinstance(event, FrameworkConfigured)
        options = same_options(program, event)
        change = PluginChange(program, site.source, site.node, options)
        change.run()
        old = version_obstacle("accelerate", ACCELERATE, site.source.path)
        reasons = [*change.blockers, *([old] if old else [])]
        finding.related = tuple(
            (NodeSite(source, node), why) for source, node, why in obstacles(program, site.source)
        )
        reasons += dict.fromkeys(why for _, why in finding.related)
        if reasons:
            finding.blocker = "; ".join(reasons)
            finding.help = f"Not migrated: {finding.blocker}."
            return None
        words = "; ".join([*change.doubts, *change.notes])
        safety = Safety.UNSAFE if change.doubts else Safety.SAFE
        return change.rewrite.fix("Configure FSDP2" + (f" ({words})" if words else ""), safety)

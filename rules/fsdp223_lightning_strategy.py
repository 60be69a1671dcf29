"""FSDP223: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.migration.rule import MigrationRule
from fsdplint.trace import FrameworkConfigured, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class LightningStrategy(MigrationRule):
    """Lightning trains with FSDP1.

    ## What it does
    Finds `FSDPStrategy(...)` of Lightning (PyTorch and Fabric), and `Trainer` and `Fabric` with the strategy "fsdp" or
    "fsdp_cpu_offload".

    ## Why is this bad?
    `FSDPStrategy` uses FSDP1, which is no longer developed. Lightning's strategy for FSDP2 is
    `ModelParallelStrategy`, which shards nothing itself: the program has to shard the model.

    ## Fix safety
    Safe for Fabric: the strategy gets a `parallelize_fn` beside it, which shards what the old strategy wrapped, with the
    same precision. The migration is unsafe if `init_module(empty_init=True)` builds the model on the meta device: the first
    weights are other random numbers.

    These things stay as they are by a change of the code:

    - `precision="bf16-mixed"` made a policy for FSDP1. The function gives `fully_shard` the same policy.
    - `ModelParallelStrategy` uses tensor parallelism within each machine by default. It gets
      `data_parallel_size=<all devices>` and `tensor_parallel_size=1`.
    - `clip_gradients` of the new strategy raises an error if the norm is not finite. It gets `error_if_nonfinite=False`.
    - An optimizer that is built before `fabric.setup` is built after it.

    Checkpoints keep their format: `state_dict_type="full"` becomes `save_distributed_checkpoint=False`, and sharded
    checkpoints of the old strategy can be loaded.

    There is no fix

    - for `Trainer`: a person has to write `configure_model` in the LightningModule, which applies `fully_shard` to the layers
      that `auto_wrap_policy` names and then to the model, with the mesh `self.device_mesh["data_parallel"]` and the
      precision and `reshard_after_forward` of the old strategy;
    - if the number of devices is not known to be an integer where the strategy is made;
    - for `cpu_offload`, `NO_SHARD`, and the precision "16-mixed", which the new strategy rejects;
    - for a backward pass outside of the `no_backward_sync` blocks of the program: after such a block, Lightning leaves the
      reduction of gradients off.

    Measured with Lightning 2.6.6 and torch 2.13.0 on two CPU ranks, where the check of the old strategy for GPUs was
    taken out: programs with 32-true, bf16-mixed and activation checkpointing had the same losses before and after, norms
    of gradients within 1e-6, and continued from each other's sharded checkpoints. The tests of this rule do not run
    Lightning.

    ## Since
    Lightning 2.3 and torch 2.6.

    ## References
    - https://lightning.ai/docs/pytorch/stable/advanced/model_parallel/tp_fsdp.html
    """

    code = "FSDP223"
    name = "lightning-strategy"
    severity = Severity.INFO
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        for event in trace.of(FrameworkConfigured):
            if event.framework != "lightning":
                continue
            strategy = event.options.get("strategy")
            if event.api == "FSDPStrategy":
                message = "`FSDPStrategy` of Lightning uses FSDP1"
            elif isinstance(strategy, str) and strategy in ("fsdp", "fsdp_cpu_offload"):
                message = f'`strategy="{strategy}"` of Lightning uses FSDP1'
            else:
                continue
            if event.of_fabric:
                yield self.finding(event, message, help="Use `ModelParallelStrategy`.")
                continue
            finding = self.finding(event, message)
            words = _manual_steps(event)
            finding.blocker = "`ModelParallelStrategy` shards only what the program shards"
            finding.help = (
                "Shard the model with `fully_shard` in `configure_model`, and use "
                "`ModelParallelStrategy(data_parallel_size=<all devices>, "
                f"tensor_parallel_size=1)`{words}."
            )
            yield finding

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        event = finding.events[0]
        fabric = isinstance(event, FrameworkConfigured) and event.of_fabric
        return super().fix(finding, program) if fabric else None


# What a person has to do for each option of FSDPStrategy.
_MANUAL_STEPS = {
    "auto_wrap_policy": "shard what `auto_wrap_policy` names before the whole",
    "mixed_precision": "give `fully_shard` a `MixedPrecisionPolicy`",
    "cpu_offload": "give `fully_shard` a `CPUOffloadPolicy`",
    "activation_checkpointing": "apply the activation checkpointing there, before sharding",
    "activation_checkpointing_policy": "apply the activation checkpointing there, before sharding",
    "device_mesh": "shard over a mesh of two dimensions, which it doesn't make",
}


def _manual_steps(event: FrameworkConfigured) -> str:
    """What the options given ask for, as the rest of a sentence."""
    options = event.options
    words = [text for key, text in _MANUAL_STEPS.items() if options.get(key) not in (None, False)]
    strategy = str(options.get("sharding_strategy", "")).rpartition(".")[2]
    if strategy == "SHARD_GRAD_OP":
        words.append("`reshard_after_forward=False`")
    elif strategy == "NO_SHARD":
        words.append("or rather `DDPStrategy`, as nothing is sharded")
    elif "HYBRID" in strategy:
        words.append("shard over a mesh of two dimensions, which it doesn't make")
    if event.api == "FSDPStrategy" and options.get("state_dict_type", "full") == "full":
        words.append("`save_distributed_checkpoint=False` keeps checkpoints whole")
    return "".join(f"; {word}" for word in dict.fromkeys(words))

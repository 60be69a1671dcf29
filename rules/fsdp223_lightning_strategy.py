"""FSDP223: see the class."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.migration.rule import MigrationRule
from fsdplint.trace import FrameworkConfigured, Trace


class LightningStrategy(MigrationRule):
    """Lightning trains with FSDP1.

    ## What it does
    Finds `FSDPStrategy(...)` of Lightning (PyTorch and Fabric), and `Trainer` and `Fabric` with the strategy "fsdp" or
    "fsdp_cpu_offload".

    ## Why is this bad?
    `FSDPStrategy` uses FSDP1, which is no longer developed. Lightning's strategy for FSDP2 is
    `ModelParallelStrategy`, which shards nothing itself: the program has to shard the model.

    ## Fix safety
    Safe: what the old strategy wrapped is sharded, with the same precision. The strategy of Fabric gets a `parallelize_fn` beside
    it. With Trainer, the LightningModule gets `configure_model`, which shards the module and registers its steps: FSDP1 ran them
    in the forward of its wrapper.

    These things stay as they are by a change of the code:

    - `precision="bf16-mixed"` made a policy for FSDP1. `fully_shard` gets the same policy.
    - `ModelParallelStrategy` uses tensor parallelism within each machine by default. It gets
      `data_parallel_size=<all devices>` and `tensor_parallel_size=1`.
    - `fabric.clip_gradients` of the new strategy raises an error if the norm is not finite. It gets
      `error_if_nonfinite=False`.
    - An optimizer that is built before `fabric.setup` is built after it.
    - `state_dict_type="full"`, the default of Trainer, becomes `save_distributed_checkpoint=False`.

    Unsafe in two cases:

    - `fabric.init_module(empty_init=True)` builds the model on the meta device: the first weights are other random numbers.
    - With bf16-mixed, a step of the LightningModule calls the module with a tensor that is not a part of the batch: it is cast to
      bfloat16.

    There is no fix

    - if the number of devices is not known to be an integer where the strategy is made;
    - for `cpu_offload`, `NO_SHARD`, and the precision "16-mixed", which the new strategy rejects;
    - for a backward pass of Fabric outside of the `no_backward_sync` blocks of the program: after such a block, Lightning
      leaves the reduction of gradients off;
    - if the LightningModule is not known, has `configure_model` already, or its file does not have the classes of the policy;
    - for `sync_batchnorm`, which the new strategy ignores.

    Measured with Lightning 2.6.6 and torch 2.13.0 on two CPU ranks, where the check of the old strategy for GPUs was
    taken out: programs of Fabric and of Trainer with 32-true, bf16-mixed, dropout and activation checkpointing had the same losses
    before and after, to the bit or within 1e-6. Fabric continued from the sharded checkpoints of the old strategy, and both
    strategies of Trainer from the same whole checkpoint. Trainer cannot load sharded checkpoints of the old strategy. The
    tests of this rule do not run Lightning.

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
            yield self.finding(event, message, help="Use `ModelParallelStrategy`.")

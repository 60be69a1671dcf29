"""FSDP221: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import FrameworkConfigured, Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class AcceleratePlugin(Rule):
    """Accelerate's `FullyShardedDataParallelPlugin` configures FSDP1.

    ## What it does
    Finds calls of the plugin with `fsdp_version=1`, or without a version and with arguments that only FSDP1 reads.

    ## Why is this bad?
    FSDP1 is no longer developed, and new features of Accelerate are for FSDP2. If only `fsdp_version=2` is added, some
    of FSDP1's arguments raise errors (`forward_prefetch`, `MixedPrecision`, strategies). Two others have no error: a
    wrapping policy that is not a name shards only the whole model, and state dicts are sharded by default.

    ## Fix safety
    Safe if the remaining arguments keep their meaning. `transformer_auto_wrap_policy` with classes becomes their names
    in `transformer_cls_names_to_wrap`. Unsafe in four cases:

    - `sync_module_states` without `cpu_ram_efficient_loading`: rank 0 no longer sends its weights.
    - `activation_checkpointing`: a recomputed layer draws other random numbers, so dropout gives wrong gradients.
    - Buffers were cast.
    - Full state dicts were only the default.

    There is no fix if a strategy replicates (`NO_SHARD`; a hybrid one, which needs a mesh in the Accelerator), for any
    other policy, or if the program passes `prepare` a model without its optimizer, or several models, which
    Accelerate's FSDP2 rejects.

    Measured with Accelerate 1.15.0 and torch 2.13.0 on two CPU ranks: a program with SHARD_GRAD_OP, bf16 and
    `transformer_auto_wrap_policy` had the same losses before and after, gradient norms within 1e-7, and the same
    layers sharded; `prepare(model)` alone raised a ValueError. The tests of this rule do not run Accelerate.

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

    def check(self, trace: Trace) -> Iterable[Finding]:
        from fsdplint.migration.frameworks.versions import is_fsdp1_plugin

        for event in trace.of(FrameworkConfigured):
            if event.framework == "accelerate" and is_fsdp1_plugin(event.options):
                yield self.finding(
                    event,
                    "this plugin of Accelerate configures FSDP1",
                    help="Pass `fsdp_version=2` (Accelerate 1.7 or later) and the arguments of FSDP2.",
                )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.migration.frameworks.fixes import block, configuring_call, describe
        from fsdplint.migration.frameworks.plugin import PluginChange
        from fsdplint.migration.frameworks.prepared_models import obstacles
        from fsdplint.migration.frameworks.versions import ACCELERATE, version_obstacle
        from fsdplint.source.source import NodeSite

        configuring = configuring_call(finding, program)
        if configuring is None:
            return None
        source, call, options = configuring
        change = PluginChange(program, source, call, options)
        change.run()
        old = version_obstacle("accelerate", ACCELERATE, source.path)
        reasons = [*change.blockers, *([old] if old else [])]
        finding.related = tuple(
            (NodeSite(other, node), reason) for other, node, reason in obstacles(program, source)
        )
        reasons += dict.fromkeys(reason for _, reason in finding.related)
        if reasons:
            block(finding, reasons)
            return None
        return change.rewrite.fix(*describe(change.doubts, change.notes))

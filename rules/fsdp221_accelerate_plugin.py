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

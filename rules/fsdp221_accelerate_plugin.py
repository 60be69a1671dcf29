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

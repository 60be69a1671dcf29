"""FSDP220: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program
    from fsdplint.source.config_source import ConfigSource


class AccelerateConfig(Rule):
    """A configuration of `accelerate launch` asks for FSDP1.

    ## What it does
    Finds YAML and JSON files of Accelerate with `distributed_type: FSDP` and an `fsdp_config` whose
    `fsdp_version` is 1, which it also is where it is not given.

    ## Why is this bad?
    FSDP1 is no longer developed, and what is new in Accelerate is for FSDP2. Accelerate's own `to-fsdp2` loses the comments, takes
    `HYBRID_SHARD` for sharding over all machines and `NO_SHARD` for ZeRO-2, leaves numbered strategies and
    `LOCAL_STATE_DICT` to fail later, and lets the format of checkpoints change.

    ## Fix safety
    Safe: `fsdp_sharding_strategy` becomes `fsdp_reshard_after_forward`, a hybrid one with the
    `parallelism_config` that it needs; keys without a meaning go; the state dicts stay full where that was the
    default. Unsafe where rank 0's weights were sent to the other ranks and would not be any longer
    (`fsdp_sync_module_states` without `fsdp_cpu_ram_efficient_loading`: each rank then shards its own weights),
    with ignored modules, and with `fsdp_activation_checkpointing`: Accelerate's FSDP2 does not restore the random numbers when it
    recomputes a layer, so that dropout in it gives wrong gradients.

    What has no counterpart is left as it is and named: `NO_SHARD`; `HYBRID_SHARD` where the numbers of machines and
    processes are not in the file; `LOCAL_STATE_DICT`; `SIZE_BASED_WRAP`, which in Accelerate's FSDP2 shards
    `ModuleList`s as well and fails; ignored modules with `fsdp_cpu_ram_efficient_loading`, which are sharded all the
    same.

    What the program has to do: give the model and its optimizer to `accelerator.prepare` in one call (Transformers'
    Trainer does). With `fsdp_cpu_ram_efficient_loading`, which is the default, a model with persistent buffers
    (BatchNorm's) fails in `prepare`, with "'Tensor' object has no attribute 'device_mesh'".

    Seen with Accelerate 1.15.0 and torch 2.13.0 on two CPU ranks: before and after, the losses of a small model are the
    same in float32 and bf16 and the gradient norms within 2e-7; on four, the hybrid mesh trains as a flat one does;
    `fsdp_cpu_ram_efficient_loading` sends rank 0's weights to all. The gradient norm of the first step with dropout
    and activation checkpointing was 6.84 before and 6.35 after. The tests of this rule run nothing: Accelerate is not
    one of their dependencies.

    ## Since
    Accelerate 1.10 for `parallelism_config`, 1.7 otherwise, and torch 2.6.

    ## References
    - https://huggingface.co/docs/accelerate/concept_guides/fsdp1_vs_fsdp2
    - https://huggingface.co/docs/accelerate/usage_guides/fsdp
    """

    code = "FSDP220"
    name = "accelerate-config"
    severity = Severity.INFO
    fixable = Safety.SAFE
    fix_since = "2.6"

    def check(self, trace: Trace) -> Iterable[Finding]:
        return ()

    def check_config(self, config: ConfigSource) -> Iterable[Finding]:
        from fsdplint.migration.frameworks.accelerate_file import fsdp1_entry, translated

        entry = fsdp1_entry(config)
        if entry is None:
            return
        finding = Finding(
            rule=type(self),
            site=config.at(entry),
            message="this configuration of Accelerate trains with FSDP1",
            help="Set `fsdp_version: 2` (Accelerate 1.7), with the settings of FSDP2; the program has "
            "to give `accelerator.prepare` the model and its optimizer in one call.",
        )
        blockers = translated(config, entry).blockers
        if blockers:
            finding.blocker = "; ".join(reason for _, reason in blockers)
            finding.help = f"Not migrated: {finding.blocker}."
            finding.related = tuple(
                (config.at(one), "stands in the way") for one, _ in blockers if one is not None
            )
        yield finding

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.migration.frameworks.accelerate_file import edits_of, fsdp1_entry, translated
        from fsdplint.migration.frameworks.prepared import obstacles
        from fsdplint.source.config_source import ConfigError
        from fsdplint.syntax.qualified_names import imported_names

        config = program.configs[finding.site.path]
        entry = fsdp1_entry(config)
        if entry is None or finding.blocker:
            return None
        for source in program.sources.values():
            if not any(full.startswith("accelerate") for full in imported_names(source).values()):
                continue
            for other, node, why in obstacles(program, source):
                at = other.location(node)
                finding.blocker = f"{why} ({at.path}:{at.line}), and this file may be for it"
                finding.help = f"Not migrated: {finding.blocker}."
                return None
        wanted = translated(config, entry).translation
        try:
            edits = edits_of(config, entry, wanted)
        except ConfigError as error:
            finding.blocker = f"the form of this file can't be edited: {error}"
            return None
        words = "; ".join([*wanted.doubts, *wanted.notes])
        return Fix(
            title="Configure FSDP2" + (f" ({words})" if words else ""),
            safety=Safety.UNSAFE if wanted.doubts else Safety.SAFE,
            edits=edits,
        )

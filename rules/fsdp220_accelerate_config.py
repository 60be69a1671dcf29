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
    """A configuration of `accelerate launch` selects FSDP1.

    ## What it does
    Finds YAML and JSON files of Accelerate with `distributed_type: FSDP` and an `fsdp_config` whose
    `fsdp_version` is 1 or missing, which means 1.

    ## Why is this bad?
    FSDP1 is no longer developed, and new features of Accelerate are for FSDP2. Accelerate's own `to-fsdp2` loses the
    comments, turns `HYBRID_SHARD` into sharding over all machines and `NO_SHARD` into ZeRO-2, keeps numbered
    strategies and `LOCAL_STATE_DICT`, which fail later, and changes the format of checkpoints.

    ## Fix safety
    Safe: `fsdp_sharding_strategy` becomes `fsdp_reshard_after_forward`, and a hybrid strategy also gets the
    `parallelism_config` that it needs. Keys without a meaning in FSDP2 are removed. State dicts stay full if that was
    the default. A comment that is only about a removed key, or that names the old strategies behind their key, is
    removed, too. All programs of the project that use Accelerate are read, because each may be launched with the file.
    Unsafe in three cases:

    - `fsdp_sync_module_states` without `fsdp_cpu_ram_efficient_loading`: rank 0 no longer sends its weights, and each
      rank shards its own.
    - Ignored modules.
    - `fsdp_activation_checkpointing`: Accelerate's FSDP2 does not restore the random state when it recomputes a layer,
      so dropout gives wrong gradients.

    Settings without a counterpart stay as they are, and the finding names them: `NO_SHARD`; `HYBRID_SHARD` if the
    numbers of machines and processes are not in the file; `LOCAL_STATE_DICT`; `SIZE_BASED_WRAP`, which in Accelerate's
    FSDP2 also shards `ModuleList`s and fails; ignored modules with `fsdp_cpu_ram_efficient_loading`, which FSDP2
    shards in spite of the setting.

    The program has to pass the model and its optimizer to `accelerator.prepare` in one call (the Trainer of
    Transformers does). With `fsdp_cpu_ram_efficient_loading`, which is the default, a model with persistent buffers
    (BatchNorm) fails in `prepare`, with "'Tensor' object has no attribute 'device_mesh'".

    Measured with Accelerate 1.15.0 and torch 2.13.0 on two CPU ranks: before and after, the losses of a small model are
    equal in float32 and bf16, and the gradient norms within 2e-7. On four ranks, the hybrid mesh trains like a flat
    one. `fsdp_cpu_ram_efficient_loading` sends rank 0's weights to all ranks. The gradient norm of the first step with
    dropout and activation checkpointing was 6.84 before and 6.35 after. The tests of this rule do not run Accelerate,
    which is not one of their dependencies.

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
        from fsdplint.migration.frameworks.accelerate_file import fsdp1_entry, translate_file
        from fsdplint.migration.frameworks.fixes import block

        entry = fsdp1_entry(config)
        if entry is None:
            return
        finding = Finding(
            rule=type(self),
            site=config.at(entry),
            message="this configuration of Accelerate trains with FSDP1",
            help="Set `fsdp_version: 2` (Accelerate 1.7 or later) and the settings of FSDP2. The program "
            "has to pass the model and its optimizer to `accelerator.prepare` in one call.",
        )
        blockers = translate_file(config, entry).blockers
        if blockers:
            block(finding, [reason for _, reason in blockers])
            finding.related = tuple(
                (config.at(entry), "blocks the migration")
                for entry, _ in blockers
                if entry is not None
            )
        yield finding

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.migration.frameworks.accelerate_file import (
            edits_of,
            fsdp1_entry,
            translate_file,
        )
        from fsdplint.migration.frameworks.fixes import block, describe
        from fsdplint.migration.frameworks.prepared_models import obstacles
        from fsdplint.source.config_source import ConfigError
        from fsdplint.syntax.qualified_names import imported_names

        config = program.configs[finding.site.path]
        entry = fsdp1_entry(config)
        if entry is None or finding.blocker:
            return None
        for source in program.sources.values():
            if not any(map(_may_be_accelerator, imported_names(source).values())):
                continue
            for other, node, reason in obstacles(program, source):
                at = other.location(node)
                block(finding, [f"{reason} ({at.path}:{at.line}), and may use this file"])
                return None
        translation = translate_file(config, entry).translation
        try:
            edits = edits_of(config, entry, translation)
        except ConfigError as error:
            finding.blocker = f"this file cannot be edited: {error}"
            return None
        return Fix(*describe(translation.doubts, translation.notes), edits)


def _may_be_accelerator(name: str) -> bool:
    """Whether code that imports a name may use the `Accelerator`, which reads the settings.

    Other functions of the library, such as `init_empty_weights`, do not read them.
    """
    return name in ("accelerate", "accelerate.accelerator") or (
        name.startswith("accelerate.") and name.rpartition(".")[2] == "Accelerator"
    )

"""FSDP222: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Edit, Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import FrameworkConfigured, Trace

if TYPE_CHECKING:
    import libcst as cst

    from fsdplint.interpreter import Program
    from fsdplint.migration.frameworks.arguments import ArgumentChanges
    from fsdplint.source.source import Source


class TrainerFsdpArguments(Rule):
    """`TrainingArguments` of Transformers select FSDP1, or no version of FSDP.

    ## What it does
    Finds `fsdp="full_shard ..."` and other strategies in `TrainingArguments` (and its subclasses: Seq2Seq's, TRL's
    SFTConfig, DPOConfig, GRPOConfig, RewardConfig and KTOConfig) if `fsdp_config`, a dict or a JSON file, has no
    `version` or has 1. FSDP of PyTorch/XLA is not reported.

    ## Why is this bad?
    Without a version, Transformers uses FSDP1 before 5.10 and FSDP2 since, which ignores or rejects settings that only
    FSDP1 has. Transformers has deprecated FSDP1 too.

    ## Fix safety
    Safe if the remaining settings keep their meaning. Unsafe in two cases:

    - Rank 0 sent its weights to the other ranks, which is the default, and no longer does. Without
      `cpu_ram_efficient_loading`, each rank shards its own weights, so all ranks have to build the same ones, also
      those of a new head.
    - `activation_checkpointing`: a recomputed layer draws other random numbers, so dropout gives wrong gradients.

    Transformers 4 ignores `version`, and TrainingArguments alone cannot select FSDP2 there. The fix is for 5.10 and
    later. There is no fix if the project's requirements allow only older releases, for hybrid strategies, which have no
    mesh, or for wrapping by size (see FSDP220).

    The versions come from the sources of Transformers 4.46 to 5.23. Measured with 5.23.0, Accelerate 1.15.0 and torch
    2.13.0 on two CPU ranks: four steps of the Trainer with a small GPT-2, `version` 1 and 2, had the same losses within
    1e-7 and the same gradient norms; hybrid strategies are rejected. The page of FSDP220 describes Accelerate. The tests
    of this rule do not run Transformers.

    ## Since
    Transformers 5.10 and torch 2.6.

    ## References
    - https://huggingface.co/docs/transformers/fsdp
    """

    code = "FSDP222"
    name = "trainer-fsdp-arguments"
    severity = Severity.INFO
    fixable = Safety.SAFE
    fix_since = "2.6"

    def check(self, trace: Trace) -> Iterable[Finding]:
        from fsdplint.migration.frameworks.arguments import is_fsdp1, settings_of, without_prefixes

        for event in trace.of(FrameworkConfigured):
            if event.framework != "transformers" or not is_fsdp1(event.options):
                continue
            given = "version" in without_prefixes(settings_of(event.options) or {})
            yield self.finding(
                event,
                f"`{event.api}` selects FSDP1"
                if given
                else f"`{event.api}` does not choose a version of FSDP: Transformers uses FSDP1 before 5.10 and FSDP2 since",
                help='Set `"version": 2` in `fsdp_config` (Transformers 5.10 or later) and the settings of FSDP2.',
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.migration.frameworks.arguments import is_fsdp1, translate
        from fsdplint.migration.frameworks.fixes import block, configuring_call
        from fsdplint.migration.frameworks.versions import TRANSFORMERS, version_obstacle

        configuring = configuring_call(finding, program)
        if configuring is None:
            return None
        source, call, options = configuring
        if ... in (options.get("fsdp"), options.get("fsdp_config")) or not is_fsdp1(options):
            finding.blocker = "`fsdp` and `fsdp_config` are only known when the program runs"
            return None
        changes = translate(options)
        old = version_obstacle("transformers", TRANSFORMERS, source.path)
        reasons = [*changes.blockers, *([old] if old else [])]
        fix = None if reasons else _build_fix(program, source, call, options, changes)
        if fix is None:
            block(finding, reasons or ["`fsdp_config` is not a dict or a file that can be edited"])
        return fix


def _build_fix(
    program: Program,
    source: Source,
    call: cst.Call,
    options: dict[str, object],
    changes: ArgumentChanges,
) -> Fix | None:
    """The fix, which changes the dict or the file, or adds an argument."""
    import libcst as cst

    from fsdplint.edits.config_edits import MappingEdit
    from fsdplint.edits.rewrite import Rewrite
    from fsdplint.migration.frameworks.dicts import change
    from fsdplint.migration.frameworks.fixes import describe
    from fsdplint.source.config_source import ConfigError

    title, safety = describe(changes.doubts, changes.notes)
    args = {arg.keyword.value: arg for arg in call.args if arg.keyword is not None}
    path, rewrite = options.get("fsdp_config_file"), Rewrite()
    if isinstance(path, str):
        config = program.configs.get(path)
        if config is None:
            return None
        edit = MappingEdit(config, config.top)
        for key in changes.removed_keys:
            edit.drop(key)
        for key, value in changes.new_values.items():
            edit.set(key, value)
        try:
            edits: tuple[Edit, ...] = edit.edits()
        except ConfigError:
            return None
        return Fix(title, safety, edits)
    node = args["fsdp_config"].value if "fsdp_config" in args else None
    if node is None or (isinstance(node, cst.Name) and node.value == "None"):
        pairs = ", ".join(f'"{key}": {value!r}' for key, value in changes.new_values.items())
        if node is not None:
            rewrite.replace(source, node, f"{{{pairs}}}")
        else:
            _insert_argument(rewrite, source, args["fsdp"], f"fsdp_config={{{pairs}}}")
        return rewrite.fix(title, safety)
    place = _dict_display(program, source, node)
    if place is None or not change(rewrite, *place, changes.removed_keys, changes.new_values):
        return None
    return rewrite.fix(title, safety)


def _dict_display(
    program: Program, source: Source, node: cst.BaseExpression
) -> tuple[Source, cst.Dict] | None:
    """The dict display of an argument, also through a variable; None if it is unknown."""
    import libcst as cst

    if isinstance(node, cst.Dict):
        return source, node
    sites = {value.created_at for value in program.values(node)}
    if len(sites) != 1:
        return None
    (site,) = sites
    if site is None or not isinstance(site.node, cst.Dict):
        return None
    return site.source, site.node


def _insert_argument(rewrite: object, source: Source, after: cst.Arg, text: str) -> None:
    """Insert an argument after another one, on a separate line if that has one."""
    from fsdplint.edits.rewrite import Rewrite
    from fsdplint.syntax.arguments import value_end

    assert isinstance(rewrite, Rewrite)
    start = source.span(after)[0]
    line = source.line_start(start)
    indent = source.text[line:start]
    separator = ", " if indent.strip() else f",\n{indent}"
    rewrite.insert(source, value_end(source, after), separator + text)

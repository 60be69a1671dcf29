"""What becomes of a generated program: it is run, migrated and run again, and both runs are compared."""

from __future__ import annotations

import re
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from generated_program import program
from plain_ranks import Ended, PlainRanks
from program_features import FEATURES, Description, consistent
from program_tolerance import compare, resumes

from fsdplint.config.options import Options
from fsdplint.config.target_torch import explicit
from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.engine.fix import FixResult, fix
from fsdplint.engine.migration import RULES
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

REJECTED = "rejected"  # FSDP1 itself does not run the program
SAME = "same"
BLOCKED = "blocked"
UNSAFE = "different, as the unsafe fix says"
CORRECTED = "resumes as FSDP1 does not"  # by a defect of FSDP1's own functions
ENLARGED = "rounding that the optimizer enlarges"
MENDED = "as without a defect of the original"  # that a rule finds and fixes
DEFECTS = ["FSDP138"]  # that a generated program may have
FAILURES = (
    *("defect", "left", "error found", "not idempotent", "unbound"),
    *("crash", "hang", "difference"),
)
# Names of FSDP1 that no migrated program has.
LEFT = re.compile(
    r"FullyShardedDataParallel|\bFSDP\b|ShardingStrategy|StateDictType|MixedPrecision\b|CPUOffload\b"
    r"|BackwardPrefetch|FullStateDictConfig|FullOptimStateDictConfig|Sharded\w*StateDictConfig"
    r"|ShardedGradScaler|(?:transformer|size_based|lambda)_auto_wrap_policy|enable_wrap|CustomPolicy|ModuleWrapPolicy|_or_policy"
    r"|always_wrap_policy|summon_full_params|\.no_sync\(|model\.clip_grad_norm_|_optim_state_dict"
)


@dataclass
class Outcome:
    """What became of a program.

    Attributes:
        kind: REJECTED, SAME, BLOCKED or one of FAILURES.
        reason: why: the blockers, the first difference, or the end of an error.
        before, after: the files.
        exact: whether both runs printed the same text.
    """

    kind: str
    reason: str = ""
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False
    unsafe: bool = False
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.kind in FAILURES


def judge(description: Description, ranks: PlainRanks) -> Outcome:
    """Run and migrate the program of a description."""
    started = time.monotonic()
    files = program(description)
    outcome = _judge(description, files, ranks)
    outcome.before = files
    outcome.seconds = time.monotonic() - started
    return outcome


def _judge(description: Description, files: Mapping[str, str], ranks: PlainRanks) -> Outcome:
    emulate = description["device"] == "cuda"
    first = ranks.run_files(files, emulate=emulate)
    if first.status != "ok":
        return Outcome(REJECTED, _last_line(first.error) or first.status)
    try:
        outcome = migrate(files)
    except Exception:
        return Outcome("defect", traceback.format_exc())
    if outcome.kind != SAME:
        return outcome
    second = ranks.run_files(outcome.after, emulate=emulate)
    result = _compared(description, first, second, outcome)
    if result.kind == "difference":
        result.kind = _explained(description, ranks)
    if result.kind == "difference":
        mended = _fixed(files, DEFECTS).texts
        if mended:
            texts = {name: mended.get(Path(name), text) for name, text in files.items()}
            first = ranks.run_files(texts, emulate=emulate)
            if _compared(description, first, second, outcome).kind == SAME:
                result.kind = MENDED
    return result


def _explained(d: Description, ranks: PlainRanks) -> str:
    """What explains a difference, shown by other programs; else it is a "difference"."""
    if d["checksum"] == "none" and d["resume"] != FEATURES["resume"][0]:
        # The program prints no parameters, from which a resumed training can be judged.
        prints = consistent({**d, "ema": "none", "checksum": "summon"})
        if judge(prints, ranks).kind == CORRECTED:
            return CORRECTED
    if d["evaluation"] == "summon" and _is_damaged_by_evaluation(d, ranks):
        return MENDED
    return ENLARGED if _is_enlarged_rounding(d, ranks) else "difference"


def _is_enlarged_rounding(d: Description, ranks: PlainRanks) -> bool:
    """Whether a difference needs both low precision and an optimizer that divides by gradients.

    Such an optimizer makes a step of the same size of a gradient of 0.5 and of one of 1e-6, which
    rounding may have left of zero. Without either, the program has to print the same.
    """
    if d["precision"] == "none" or d["optimizer"] in ("sgd", "momentum"):
        return False
    others = {**d, "optimizer": "momentum"}, {**d, "precision": "none"}
    return all(judge(consistent(one), ranks).kind in (SAME, CORRECTED) for one in others)


def _is_damaged_by_evaluation(d: Description, ranks: PlainRanks) -> bool:
    """Whether the evaluation in a block of `summon_full_params` changes the original's training.

    This is the defect that FSDP138 finds, without a fix if the block calls the model itself. The same
    evaluation outside of the block changes nothing, and its migration has to be right.
    """
    outside = consistent({**d, "evaluation": "no_grad"})
    emulate = d["device"] == "cuda"
    runs = [ranks.run_files(program(one), emulate=emulate) for one in (outside, d)]
    changes = compare(d, runs[0].output, runs[1].output) is not None
    return changes and judge(outside, ranks).kind == SAME


def _fixed(files: Mapping[str, str], codes: list[str]) -> FixResult:
    """The fixes of some rules for files that are not on the disk."""
    texts = {Path(name): text for name, text in files.items()}
    workspace = Workspace(list(texts), texts, options=Options(), unsafe=True)
    return fix(workspace, [rule() for rule in all_rules() if rule.code in codes], codes=codes)


def migrate(files: Mapping[str, str]) -> Outcome:
    """The migrated files, with kind SAME, or why there are none or why they are wrong."""
    with tempfile.TemporaryDirectory(prefix="fsdplint-generated-") as folder:
        paths = {Path(folder, name): name for name in files}
        for path, name in paths.items():
            path.write_text(files[name], encoding="utf-8")
        options = Options(target=explicit("2.13"))
        rules = [rule() for rule in all_rules()]
        codes = [rule.code for rule in rules if any(map(rule.code.startswith, RULES))]
        result = fix(Workspace(list(paths), options=options, unsafe=True), rules, codes=codes)
        after = {name: result.texts.get(path, files[name]) for path, name in paths.items()}
        outcome = _migrated(files, after, result)
        if outcome.kind == SAME:
            texts = {path: after[name] for path, name in paths.items()}
            workspace = Workspace(list(paths), texts, options=options, unsafe=True)
            again = fix(workspace, rules, codes=codes)
            if any(
                again.texts.get(path, after[name]) != after[name] for path, name in paths.items()
            ):
                return Outcome("not idempotent", "a second run changes the files", after=after)
        return outcome


def _migrated(files: Mapping[str, str], after: Mapping[str, str], result: FixResult) -> Outcome:
    blocked = {_blocker(one) for one in result.remaining if one.blocker_codes}
    blocked |= {one.help for one in result.remaining if "Not migrated, because of" in one.help}
    named = [one for one in blocked if "Not migrated, because" not in one]
    if blocked:
        return Outcome(BLOCKED, "; ".join(sorted(named or blocked)), after=after)
    uses = [one for one in result.remaining if one.rule.code.startswith("FSDP2")]
    if uses:
        return Outcome(
            "left", f"{uses[0].rule.code}: {uses[0].message} {uses[0].help}", after=after
        )
    text = "\n".join(after.values())
    names = LEFT.findall(text)
    if names:
        return Outcome("left", f"the text has {names[0]}", after=after)
    errors = [one for one in result.found if one.rule.severity is Severity.ERROR]
    if errors:
        at = errors[0].site.location()
        return Outcome(
            "error found", f"{errors[0].rule.code} {at.line}: {errors[0].message}", after=after
        )
    fixes = [one.fix for one in result.applied if one.fix is not None]
    unsafe = any(fix.safety is Safety.UNSAFE for fix in fixes)
    return Outcome(SAME, after=after, unsafe=unsafe)


def _blocker(one: Finding) -> str:
    return f"{','.join(one.blocker_codes)}: {one.blocker}"


def _compared(d: Description, first: Ended, second: Ended, outcome: Outcome) -> Outcome:
    if second.status == "hung":
        return Outcome("hang", second.error[-2000:], after=outcome.after)
    if second.status != "ok":
        return Outcome(
            "crash", f"{_last_line(second.error)}\n{second.error[-3000:]}", after=outcome.after
        )
    difference = compare(d, first.output, second.output)
    if difference is not None:
        kind = "difference"
        if outcome.unsafe:
            kind = UNSAFE
        elif resumes(d, second.output[0]) and not resumes(d, first.output[0]):
            kind = CORRECTED
        return Outcome(kind, difference, after=outcome.after)
    return Outcome(SAME, after=outcome.after, exact=first.output == second.output)


def _last_line(text: str) -> str:
    """The line that names the exception, of a rank that did not only miss its peer."""
    lines = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
    own = [line for line in lines if "gloo" not in line]
    return (own or lines or [text.strip()])[-1][:300]

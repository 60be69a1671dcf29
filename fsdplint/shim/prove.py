"""The proof: a program is run before and after its fixes, and each fix gets a verdict."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.shim import reached
from fsdplint.shim.checkpoints import written
from fsdplint.shim.checks import Check, Comparison, Side
from fsdplint.shim.compare import compare
from fsdplint.shim.copies import LIMIT, CopyError, copy_project, project_root
from fsdplint.shim.launcher import Launch, LaunchError, Run, launch
from fsdplint.shim.merge import merge
from fsdplint.shim.verdicts import Evidence, Judged, Verdict, place_of
from fsdplint.shim.workplace import workplace
from fsdplint.trace import Trace

if TYPE_CHECKING:
    from fsdplint.rule import Finding
    from fsdplint.run import Changes


@dataclass(frozen=True)
class Options:
    """How to run; see `fsdplint prove --help`."""

    script: Path
    args: tuple[str, ...] = ()
    against: Path | None = None
    ranks: int = 2
    steps: int | None = None
    seed: int = 0
    timeout: float = 600.0
    device: str = "auto"
    unsafe: bool = False
    keep: Path | None = None
    torchrun: tuple[str, ...] = ()
    limit: int = LIMIT


@dataclass
class Proof:
    """Everything that was found out.

    Attributes:
        remaining: what a check of the fixed program finds.
        found: what else the rules find in the run of the fixed program.
    """

    script: Path
    judged: list[Judged]
    before: Run | None = None
    after: Run | None = None
    comparison: Comparison | None = None
    remaining: list[Finding] = field(default_factory=list)
    deterministic: bool | None = None
    diff: str = ""
    found: list[Finding] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether all is proven, and nothing was found that has no fix."""
        if not self.judged:
            return not self.remaining
        return all(judged.verdict is Verdict.PROVEN for judged in self.judged)


class ProveError(Exception):
    """The job could not be done; the text says why."""


Progress = Callable[[str], None]


def prove(options: Options, say: Progress = lambda text: None) -> Proof:
    """Fix a copy of the program, run both, and judge every fix.

    Raises:
        ProveError: the program cannot be read, copied, fixed or started.
        WorkplaceError: there is no folder for the copies.
    """
    script = _script(options.script)
    if options.against is not None:
        return _prove_pair(options, script, _script(options.against), say)
    fixes = _fixes(script, options.unsafe)
    remaining = list(fixes.result.findings)
    if not fixes.applied:
        return Proof(script, [], remaining=remaining)
    with workplace("prove", options.keep) as work:
        root = project_root(script)
        texts = {Path(os.path.realpath(path)): both for path, both in fixes.texts.items()}
        contents = {Path(os.path.realpath(path)): new for path, (_, new) in fixes.contents.items()}
        outside = [path for path in texts if not path.is_relative_to(root)]
        if outside:
            raise ProveError(f"{outside[0]} is to be fixed but lies outside of the project {root}")
        pair = _Pair(options, work, root, script, root, script, texts, contents)
        lines: dict[str, list[int]] = {}
        for finding in fixes.applied:
            path, line = place_of(finding)
            lines.setdefault(path, []).append(line)
        return _judge_fixes(pair, fixes.applied, remaining, lines, say)


def _script(path: Path) -> Path:
    if not path.is_file():
        raise ProveError(f"{path}: there is no such file")
    return Path(os.path.realpath(path))


def _fixes(script: Path, unsafe: bool) -> Changes:
    """The fixes of a program: of its script and of the project's files that it imports."""
    from fsdplint.editing.journal import Interrupted
    from fsdplint.program import load
    from fsdplint.run import Run as FixRun
    from fsdplint.settings import CommandLine, SettingsError

    root = project_root(script)
    sources = [Path(os.path.realpath(path)) for path in load([script]).sources]
    files = dict.fromkeys([script, *(path for path in sources if path.is_relative_to(root))])
    command_line = CommandLine(unsafe_fixes=True if unsafe else None, project=True)
    try:
        changes = FixRun(list(files), command_line).fix()
    except (SettingsError, Interrupted) as error:
        raise ProveError(str(error)) from error
    for problem in changes.result.problems:
        if os.path.realpath(problem.path) == str(script):
            raise ProveError(f"{script}: {problem.message}")
    return changes


# Running ------------------------------------------------------------------------------------------


@dataclass
class _Pair:
    """The two programs, each in its own copy of its project."""

    options: Options
    work: Path
    root: Path
    script: Path
    other_root: Path
    other_script: Path
    texts: Mapping[Path, tuple[str, str]] = field(default_factory=dict)
    contents: Mapping[Path, bytes] = field(default_factory=dict)

    def run(self, name: str, lines: Mapping[str, Sequence[int]] | None = None) -> Run:
        """Run one of the two: "before" (or a repetition, "again") or "after"."""
        root, script = self.root, self.script
        if name == "after":
            root, script = self.other_root, self.other_script
        copy = self.work / name / "project"
        try:
            copy_project(root, copy, self.options.limit)
            if name == "after":
                for path, content in self.contents.items():
                    (copy / path.relative_to(root)).write_bytes(content)
        except (CopyError, OSError) as error:
            raise ProveError(str(error)) from error
        what = Launch(
            target=str(copy / script.relative_to(root)),
            folder=self._folder(root, copy, script),
            record=self.work / name / "record",
            args=self.options.args,
            ranks=self.options.ranks,
            timeout=self.options.timeout,
            device=self.options.device,
            steps=self.options.steps,
            seed=self.options.seed,
            torchrun=self.options.torchrun,
        )
        try:
            with _asking_for(lines or {}, root, copy, self.work / name):
                run = launch(what)
        except LaunchError as error:
            raise ProveError(str(error)) from error
        if not run.records:
            raise ProveError(run.problem.replace(str(copy), str(root)) or "no rank was started")
        _speak_of(run, str(copy), str(root))
        return run

    def _folder(self, root: Path, copy: Path, script: Path) -> Path:
        """The current folder of the ranks: ours within the project, else the script's.

        Two copies of a project run in the same folder of it, that of the copy that we are in.
        """
        here = Path.cwd().resolve()
        roots = [root]
        if self.script.relative_to(self.root) == self.other_script.relative_to(self.other_root):
            roots = [self.root, self.other_root]
        around = [one for one in roots if here.is_relative_to(one)]
        if around:
            folder = copy / here.relative_to(max(around, key=lambda one: len(one.parts)))
            if folder.is_dir():
                return folder
        return (copy / script.relative_to(root)).parent

    def trace(self, run: Run, name: str) -> Trace:
        """The merged trace, speaking of the files where the user has them."""
        root = self.other_root if name == "after" else self.root
        return merge(run.records, {str(self.work / name / "project"): str(root)})

    def side(self, run: Run, trace: Trace) -> Side:
        copy = run.launch.record.parent / "project"
        root = self.other_root if copy.parent.name == "after" else self.root
        files = written(copy, root)
        return Side(run.records, trace, run.launch.record / "parameters.pt", files)


def _speak_of(run: Run, copy: str, root: str) -> None:
    """Name files where the user has them, not where they were run."""
    for end in run.ends:
        end.where, end.last, end.error = (
            text.replace(copy, root) for text in (end.where, end.last, end.error)
        )
    run.output = {rank: text.replace(copy, root) for rank, text in run.output.items()}


@contextmanager
def _asking_for(
    lines: Mapping[str, Sequence[int]], root: Path, copy: Path, folder: Path
) -> Iterator[None]:
    """Have the run report which of these lines (of the original files) it reaches."""
    if not lines:
        yield
        return
    wanted = {str(copy / Path(path).relative_to(root)): list(at) for path, at in lines.items()}
    path = folder / "lines.json"
    path.write_text(json.dumps(wanted), encoding="utf-8")
    os.environ[reached.VARIABLE] = str(path)
    try:
        yield
    finally:
        del os.environ[reached.VARIABLE]


def _reached(run: Run, root: Path, copy: Path) -> set[tuple[str, int]]:
    found = set()
    for record in run.records:
        for path, line in record.reached:
            found.add((str(root / Path(path).relative_to(copy)), line))
    return found


# Comparing ----------------------------------------------------------------------------------------


def _failure(run: Run, name: str) -> str:
    """Why a run did not end well, in one line a rank."""
    parts = [run.problem] if run.problem else []
    for end in run.ends:
        if end.status == "ok":
            continue
        text = f"rank {end.rank} {end.status}"
        if end.where:
            text += f" at {end.where}"
        if end.error:
            text += f": {end.error.strip().splitlines()[-1][:300]}"
        elif end.last:
            text += f" (last: {end.last})"
        parts.append(text)
    missing = run.launch.ranks - len(run.ends)
    if missing > 0:
        parts.append(f"{missing} ranks were not started")
    return f"the program {name}: " + "; ".join(parts)


def _compared(
    pair: _Pair, before: Run, after: Run, same_units: bool, say: Progress
) -> tuple[Trace, Trace, Comparison | None, bool | None]:
    """The traces of both, what the comparison found, and whether the program is deterministic."""
    traces = pair.trace(before, "before"), pair.trace(after, "after")
    if not before.ok or not after.ok:
        return (*traces, None, None)
    ours, theirs = pair.side(before, traces[0]), pair.side(after, traces[1])
    comparison = compare(ours, theirs, same_units=same_units)
    if comparison.holds:
        return (*traces, comparison, None)
    # Before anything is refuted: does the program agree with itself?
    say("the runs differ: running the program before once more")
    again = pair.run("again")
    if not again.ok:
        return (*traces, comparison, None)
    repeated = compare(ours, pair.side(again, pair.trace(again, "again")), same_units=True)
    return (*traces, comparison, repeated.holds)


def _prove_pair(options: Options, script: Path, other: Path, say: Progress) -> Proof:
    with workplace("prove", options.keep) as work:
        root, other_root = _common_root(script, other)
        pair = _Pair(options, work, root, script, other_root, other)
        say(f"running {script.name} on {options.ranks} ranks")
        before = pair.run("before")
        say(f"running {other.name} on {options.ranks} ranks")
        after = pair.run("after")
        _, trace, comparison, deterministic = _compared(pair, before, after, True, say)
        found = _found(other, trace, {}, [])
    verdict, reasons = _overall(before, after, comparison, deterministic)
    judged = Judged(f"{script.name} against {other.name}", verdict, reasons)
    return Proof(script, [judged], before, after, comparison, [], deterministic, found=found)


def _common_root(script: Path, other: Path) -> tuple[Path, Path]:
    """Where to copy from; a single file in a folder of unrelated ones is a project of its own."""
    return project_root(script), project_root(other)


def _overall(
    before: Run, after: Run, comparison: Comparison | None, deterministic: bool | None
) -> tuple[Verdict, list[str]]:
    if not after.ok:
        return Verdict.REFUTED, [_failure(after, "after")]
    if not before.ok:
        return Verdict.NOT_COMPARABLE, [
            _failure(before, "before"),
            "the program after ran to its end; there is nothing to compare it with",
        ]
    assert comparison is not None
    if comparison.holds:
        return Verdict.PROVEN, []
    reasons = [f"{check.name}: {check.detail}" for check in comparison.failed]
    if deterministic is False:
        return Verdict.NOT_COMPARABLE, [
            "the program before does not agree with itself in a second run",
            *reasons,
        ]
    return Verdict.REFUTED, reasons


# Judging each fix ---------------------------------------------------------------------------------


def _judge_fixes(
    pair: _Pair,
    applied: Sequence[Finding],
    remaining: list[Finding],
    lines: Mapping[str, Sequence[int]],
    say: Progress,
) -> Proof:
    # Only a migration has to shard the same modules; other rules may be about what is sharded.
    same_units = all(finding.rule.code.startswith("FSDP2") for finding in applied)
    say(f"running {pair.script.name} as it is on {pair.options.ranks} ranks")
    before = pair.run("before", lines)
    say(f"running it with {len(applied)} fixes")
    after = pair.run("after")
    before_trace, after_trace, comparison, deterministic = _compared(
        pair, before, after, same_units, say
    )
    verdict, reasons = _overall(before, after, comparison, deterministic)
    seen = _reached(before, pair.root, pair.work / "before" / "project")
    proof = Proof(pair.script, [], before, after, comparison, remaining, deterministic)
    proof.diff = _diff(pair)
    proof.found = _found(pair.script, after_trace, pair.contents, remaining)
    evidence = Evidence.of(
        applied, (verdict, reasons), seen, (before_trace, after_trace), pair.texts
    )
    proof.judged = [evidence.judge(finding) for finding in applied]
    return proof


def _found(
    script: Path, trace: Trace, contents: Mapping[Path, bytes], known: Sequence[Finding]
) -> list[Finding]:
    """What the rules find in the run of the program after, beyond what a check of it finds."""
    from fsdplint.editing.journal import Interrupted
    from fsdplint.run import Run as Checked
    from fsdplint.settings import SettingsError

    try:
        checked = Checked([script])
    except (SettingsError, Interrupted) as error:
        raise ProveError(str(error)) from error
    result = checked.check_recorded(trace, {str(path): data for path, data in contents.items()})
    seen = {(finding.rule, place_of(finding)) for finding in known}
    return [one for one in result.findings if (one.rule, place_of(one)) not in seen]


def _diff(pair: _Pair) -> str:
    parts: list[str] = []
    for path, (original, text) in sorted(pair.texts.items()):
        name = str(path.relative_to(pair.root))
        parts += difflib.unified_diff(
            original.splitlines(keepends=True), text.splitlines(keepends=True), name, name
        )
    return "".join(parts)


def all_checks(proof: Proof) -> list[Check]:
    return proof.comparison.checks if proof.comparison is not None else []

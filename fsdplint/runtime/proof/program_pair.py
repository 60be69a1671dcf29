"""The two programs of a proof, before and after, each run in its own copy of its project."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.runtime.launch import line_coverage
from fsdplint.runtime.launch.copies import (
    LIMIT,
    CopyError,
    copy_files,
    copy_project,
    files_written,
    project_root,
)
from fsdplint.runtime.launch.endings import RankEnd
from fsdplint.runtime.launch.launcher import Launch, LaunchError, Run, launch
from fsdplint.runtime.launch.machines import Nodes
from fsdplint.runtime.launch.merge import merge
from fsdplint.runtime.launch.progress import Progress
from fsdplint.runtime.launch.script import refusal
from fsdplint.runtime.proof.checkpoints import find_checkpoints
from fsdplint.runtime.proof.checks import Side
from fsdplint.runtime.recorder.full_disk import is_full
from fsdplint.trace import Trace

if TYPE_CHECKING:
    from fsdplint.engine.changes import Changes


@dataclass(frozen=True)
class Options:
    """The options of `fsdplint prove`; see its `--help`.

    simulate: simulate one of this number of ranks instead of running `ranks` of them.
    oracle: also compare with the program without sharding.
    resume: the arguments with which the program resumes from its checkpoints; compared as well.
    target_torch: the oldest torch that the fixes support; None for the project's setting.
    """

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
    nodes: Nodes = field(default_factory=Nodes)
    limit: int = LIMIT
    simulate: int | None = None
    oracle: bool = False
    resume: tuple[str, ...] | None = None
    target_torch: str | None = None


class ProveError(Exception):
    """The proof is not possible; the text says why."""


def script_of(path: Path) -> Path:
    reason = refusal(path)
    if reason:
        raise ProveError(reason)
    return Path(os.path.realpath(path))


def fixes_of(
    script: Path, unsafe: bool, ignore: tuple[str, ...] = (), target_torch: str | None = None
) -> Changes:
    """The changes that `--fix --project` makes to a program and the project's files it imports.

    ignore: the codes of rules whose fixes are left out.

    Raises:
        ProveError: the settings are invalid, or the program cannot be read.
    """
    from fsdplint.config.command_line import CommandLine
    from fsdplint.config.settings import SettingsError
    from fsdplint.diagnostics.codes import UNUSED
    from fsdplint.edits.journal import Interrupted
    from fsdplint.engine.operations import fix_files
    from fsdplint.engine.session import Session

    # Fix all findings, also those of the baseline. Unused suppressions do not matter for a run.
    command_line = CommandLine(
        ignore=(*UNUSED[:1], *ignore),
        unsafe_fixes=True if unsafe else None,
        target_torch=target_torch,
        project=True,
        no_baseline=True,
    )
    try:
        changes = fix_files(Session([script], command_line))
    except (SettingsError, Interrupted) as error:
        raise ProveError(str(error)) from error
    for problem in changes.result.problems:
        if os.path.realpath(problem.path) == str(script):
            raise ProveError(f"{script}: {problem.message}")
    return changes


@dataclass
class Pair:
    """The two programs, each in its own copy of its project.

    texts, contents: of each fixed file, the texts before and after, and the bytes to write.
    """

    options: Options
    work: Path
    root: Path
    script: Path
    other_root: Path
    other_script: Path
    texts: Mapping[Path, tuple[str, str]] = field(default_factory=dict)
    contents: Mapping[Path, bytes] = field(default_factory=dict)
    progress: Progress = field(default_factory=Progress)

    def run(
        self,
        name: str,
        lines: Mapping[str, Sequence[int]] | None = None,
        oracle: bool = False,
        resume_from: str = "",
        noise: float = 0.0,
    ) -> Run:
        """Run one of the programs; `name` begins with "before" or "after".

        oracle: replace the sharding by plain data parallelism.
        resume_from: the name of the run whose files the program resumes from.
        noise: the share by which gradients are changed before each step; 0 for none.

        Raises:
            ProveError: the program cannot be copied or started, or the disk is full.
        """
        root, script = self.root, self.script
        if name.startswith("after"):
            root, script = self.other_root, self.other_script
        copy = self._make_copy(name, resume_from)
        job = Launch(
            target=str(copy / script.relative_to(root)),
            folder=self._folder(root, copy, script),
            record=self.work / name / "record",
            args=(self.options.resume or ()) if resume_from else self.options.args,
            ranks=self.options.ranks,
            timeout=self.options.timeout,
            device=self.options.device,
            steps=self.options.steps,
            seed=self.options.seed,
            torchrun=self.options.torchrun,
            simulate=self.options.simulate,
            oracle=oracle,
            noise=noise,
            nodes=self.options.nodes,
        )
        try:
            with _requesting_lines(lines or {}, root, copy):
                run = launch(job, self.progress.follow(job.record, job.steps))
        except (LaunchError, OSError) as error:
            raise ProveError(str(error)) from error
        finally:
            self.progress.finish()
        if not run.records:
            raise ProveError(run.problem.replace(str(copy), str(root)) or "no rank was started")
        for one in self.copies(name):
            _rename_paths(run, str(one), str(root))
        full = next((end for end in run.ends if is_full(end.error)), None)
        if full is not None:
            raise ProveError(full_disk_text(name, full))
        return run

    def _make_copy(self, name: str, resume_from: str) -> Path:
        """Copy the project of a program for a run, with the files of the run to resume from."""
        root = self.other_root if name.startswith("after") else self.root
        copy = self.work / name / f"project{self.options.nodes.suffix}"
        try:
            copy_project(root, copy, self.options.limit, self.work)
            if name.startswith("after"):
                for path, content in self.contents.items():
                    (copy / path.relative_to(root)).write_bytes(content)
            if resume_from:
                for other in self.copies(resume_from):
                    copy_files(self.written_files(resume_from, other), other, copy)
        except (CopyError, OSError) as error:
            raise ProveError(str(error)) from error
        return copy

    def written_files(self, name: str, copy: Path) -> list[Path]:
        """The files that a run has written into a copy of its project, relative to the copy."""
        second = name.startswith("after")
        root = self.other_root if second else self.root
        fixes = {path.relative_to(root) for path in self.contents} if second else set()
        return [path for path in files_written(copy, root) if path not in fixes]

    def copies(self, name: str) -> list[Path]:
        """The copies of the project that a run uses, one for each node."""
        return [self.work / name / f"project{one}" for one in self.options.nodes.suffixes()]

    def _folder(self, root: Path, copy: Path, script: Path) -> Path:
        """The current folder of the ranks.

        It is the copy of the user's current folder if that is in one of the projects, else the
        folder of the script.
        """
        here = Path.cwd().resolve()
        roots = [root]
        if self.script.relative_to(self.root) == self.other_script.relative_to(self.other_root):
            roots = [self.root, self.other_root]
        enclosing = [one for one in roots if here.is_relative_to(one)]
        if enclosing:
            folder = copy / here.relative_to(max(enclosing, key=lambda one: len(one.parts)))
            if folder.is_dir():
                return folder
        return (copy / script.relative_to(root)).parent

    def trace(self, run: Run, name: str) -> Trace:
        """The merged trace of a run, with the user's paths."""
        root = self.other_root if name.startswith("after") else self.root
        return merge(run.records, {str(copy): str(root) for copy in self.copies(name)})

    def side_of(self, run: Run) -> Side:
        """The results of a run that are compared."""
        return self.side(run, self.trace(run, run.launch.record.parent.name))

    def side(self, run: Run, trace: Trace) -> Side:
        name = run.launch.record.parent.name
        root = self.other_root if name.startswith("after") else self.root
        files: dict[str, Path] = {}
        for copy in self.copies(name):
            files.update(find_checkpoints(copy, root))
        # All copies map to one folder, so that paths in the two programs' checkpoints are equal. A
        # checkpoint of a resumed run may hold paths of the run that it resumed from.
        runs = [one.name for one in self.work.iterdir() if one.is_dir()]
        copies = {str(copy): str(self.root) for one in runs for copy in self.copies(one)}
        return Side(run.records, trace, run.launch.record / "parameters.pt", files, copies)

    def diff(self) -> str:
        """The changes of the fixes as a unified diff."""
        parts: list[str] = []
        for path, (original, text) in sorted(self.texts.items()):
            name = str(path.relative_to(self.root))
            parts += difflib.unified_diff(
                original.splitlines(keepends=True), text.splitlines(keepends=True), name, name
            )
        return "".join(parts)


def pair_with_fixes(
    options: Options, work: Path, script: Path, fixes: Changes, progress: Progress | None = None
) -> Pair:
    """A program and the program with its fixes.

    Raises:
        ProveError: a fix changes a file outside of the project.
    """
    root = project_root(script)
    texts = {Path(os.path.realpath(path)): both for path, both in fixes.texts.items()}
    contents = {Path(os.path.realpath(path)): new for path, (_, new) in fixes.contents.items()}
    outside = [path for path in texts if not path.is_relative_to(root)]
    if outside:
        raise ProveError(f"a fix changes {outside[0]}, which is outside of the project {root}")
    both = (root, script, root, script)
    return Pair(options, work, *both, texts, contents, progress or Progress())


def pair_of_programs(
    options: Options, work: Path, script: Path, other: Path, progress: Progress | None = None
) -> Pair:
    """Two programs of the user."""
    both = (project_root(script), script, project_root(other), other)
    return Pair(options, work, *both, progress=progress or Progress())


def full_disk_text(name: str, end: RankEnd) -> str:
    """The message for a program that failed because the disk is full."""
    text = f"the disk was full while the program {name} ran: rank {end.rank}"
    if end.where:
        text += f" at {end.where}"
    return f"{text}: {end.cause}"


def _rename_paths(run: Run, copy: str, root: str) -> None:
    """Replace the paths of a copy by the user's paths."""
    for end in run.ends:
        end.where, end.last, end.error, end.cause = (
            text.replace(copy, root) for text in (end.where, end.last, end.error, end.cause)
        )
    run.output = {rank: text.replace(copy, root) for rank, text in run.output.items()}


@contextmanager
def _requesting_lines(lines: Mapping[str, Sequence[int]], root: Path, copy: Path) -> Iterator[None]:
    """Make the run report which of these lines of the original files it reaches."""
    if not lines:
        yield
        return
    wanted = {str(copy / Path(path).relative_to(root)): list(at) for path, at in lines.items()}
    path = copy.with_name(f"lines-of-{copy.name}.json")
    path.write_text(json.dumps(wanted), encoding="utf-8")
    os.environ[line_coverage.VARIABLE] = str(path)
    try:
        yield
    finally:
        del os.environ[line_coverage.VARIABLE]


def reached_lines(pair: Pair, run: Run) -> set[tuple[str, int]]:
    """The requested lines of the program before that at least one rank reached."""
    found = set()
    for record in run.records:
        for path, line in record.reached_lines:
            for copy in pair.copies(run.launch.record.parent.name):
                if Path(path).is_relative_to(copy):
                    found.add((str(pair.root / Path(path).relative_to(copy)), line))
    return found

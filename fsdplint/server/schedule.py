"""Decides when to check which file: one job at a time, in a thread.

The event loop never waits for a check. A change stops the running job if the job reads the changed
file. A file is checked again after a short time without changes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from fsdplint.interpreter.frames import Stopped
from fsdplint.server.analysis import FileFinding, RootChecker, RootResult, Stop, merge_findings
from fsdplint.source.files import Problem

T = TypeVar("T")

PAUSE = 0.05  # seconds without a change before a file is checked; longer where checks take long
LONGEST_PAUSE = 1.0
ATTEMPTS = 3  # of a request while the documents change


@dataclass
class Document:
    """A document that is open in the editor. `path` is a real path."""

    uri: str
    path: str
    version: int
    text: str

    @property
    def code(self) -> str:
        """The text that findings refer to."""
        return self.text


@dataclass
class _Job:
    root: str | None  # None for a request
    texts: Mapping[str, str]
    stop: threading.Event = field(default_factory=threading.Event)


def _is_in(problem: Problem, root: str) -> bool:
    return problem.path == root or problem.path.startswith(f"{root}:cell ")


class Schedule:
    """The open documents and the results of their checks."""

    def __init__(
        self,
        checker: RootChecker,
        publish: Callable[[Document, list[FileFinding], list[Problem]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Create the schedule; `start` starts the checks.

        Args:
            checker: checks the documents.
            publish: called with the findings of a document and the problems of reading it.
            failed: called with the exception of a check: invalid settings, or a defect.
        """
        self.checker = checker
        self.documents: dict[str, Document] = {}
        self.checked: dict[str, RootResult] = {}
        self._publish = publish
        self._failed = failed
        self._due: dict[str, float] = {}  # roots to check, with the earliest time
        self._took: dict[str, float] = {}
        self._job: _Job | None = None
        self._requests: list[Callable[[], object]] = []
        self._wake = asyncio.Event()
        self._executor = ThreadPoolExecutor(1, "fsdplint-check")
        self._lock = asyncio.Lock()  # one job at a time
        self._task: asyncio.Task[None] | None = None
        self._stale = False  # whether files on the disk have changed
        self._waiting = 0  # requests that wait for the thread

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._job is not None:
            self._job.stop.set()
        if self._task is not None:
            self._task.cancel()
        self._executor.shutdown(wait=False)

    # Changes -----------------------------------------------------------------------------------

    def update_document(self, document: Document) -> None:
        """Check a document that was opened or changed."""
        self.documents[document.path] = document
        self._interrupt(document.path)
        took = self._took.get(document.path, 0.0)
        self._plan(document.path, min(max(PAUSE, took / 2), LONGEST_PAUSE))

    def close_document(self, path: str) -> None:
        """Remove the findings of a document, and check what depends on its unsaved text."""
        document = self.documents.pop(path, None)
        self._interrupt(path)
        self.checked.pop(path, None)
        self._due.pop(path, None)
        for other in self.documents:  # each may read this file from the disk now
            self._plan(other)
        if document is not None:
            self._publish(document, [], [])
        for root, checked in list(self.checked.items()):
            if root not in self.documents and not checked.read_files & self.documents.keys():
                del self.checked[root]  # it was checked only because of this document
            elif path in checked.read_files:
                self._plan(root)

    def forget(self) -> None:
        """Check everything again: files on the disk or the settings have changed."""
        self._stale = True
        for root in {*self.documents, *self.checked}:
            self._interrupt(root)
            self._plan(root)

    def _plan(self, root: str, pause: float = PAUSE) -> None:
        self._due[root] = time.monotonic() + pause
        self._wake.set()

    def _interrupt(self, path: str) -> None:
        job = self._job
        if job is None:
            return
        if job.root is not None and job.root != path:
            previous = self.checked.get(job.root)
            if previous is not None and path not in previous.read_files:
                return
            self._plan(job.root)
        job.stop.set()

    # Results -----------------------------------------------------------------------------------

    def findings(self, path: str) -> list[FileFinding]:
        """The findings in a document, at their places in its current text."""
        document = self.documents.get(path)
        return (
            [] if document is None else merge_findings(path, document.code, self.checked.values())
        )

    async def compute(self, work: Callable[[Mapping[str, str], Stop], T]) -> T | None:
        """Run `work` on the current texts of the documents, before any further check.

        Returns its result if the documents did not change meanwhile; None if they changed in
        each of `ATTEMPTS` attempts.
        """
        for _ in range(ATTEMPTS):
            self._waiting += 1
            try:
                async with self._lock:
                    job = _Job(None, self._texts())
                    try:
                        result = await self._in_thread(job, work)
                    except Stopped:
                        continue
                    if job.texts == self._texts():
                        return result
            finally:
                self._waiting -= 1
                self._wake.set()
        return None

    # Checks -----------------------------------------------------------------------------------

    def _texts(self) -> dict[str, str]:
        return {path: document.text for path, document in self.documents.items()}

    async def _in_thread(self, job: _Job, work: Callable[[Mapping[str, str], Stop], T]) -> T:
        self._job = job

        def run_job() -> T:
            if self._stale:
                self._stale = False
                self.checker.forget()
            return work(job.texts, job.stop.is_set)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, run_job)
        finally:
            self._job = None

    async def _run(self) -> None:
        while True:
            root = await self._next()
            async with self._lock:
                if self._due.pop(root, None) is not None:
                    await self._check(root)

    async def _next(self) -> str:
        """Wait until a root is due, and return it: open documents come first."""
        while True:
            self._wake.clear()
            due = sorted(self._due.items(), key=lambda one: (one[0] not in self.documents, one[1]))
            wait = due[0][1] - time.monotonic() if due else None
            if wait is not None and wait <= 0 and not self._waiting:
                return due[0][0]
            try:
                await asyncio.wait_for(self._wake.wait(), None if self._waiting else wait)
            except asyncio.TimeoutError:
                pass

    async def _check(self, root: str) -> None:
        job = _Job(root, self._texts())
        start = time.monotonic()
        try:
            checked, importers = await self._in_thread(
                job, lambda t, s: self._check_with_importers(root, t, s)
            )
        except Stopped:
            return  # `_interrupt` has planned it again
        except Exception as error:
            self._failed(error)
            return
        self._took[root] = time.monotonic() - start
        before = self.checked.get(root)
        problems = [problem for problem in checked.problems if _is_in(problem, root)]
        if problems and before is not None and root not in checked.read_files:
            return  # an unfinished statement: keep the earlier findings
        self.checked[root] = checked
        for one in importers:
            previous = self.checked.get(one)
            if previous is None or any(previous.texts.get(p) != t for p, t in job.texts.items()):
                self._due.setdefault(one, time.monotonic() + LONGEST_PAUSE / 2)
        affected = {root, *checked.read_files, *(before.read_files if before is not None else ())}
        for path in affected & self.documents.keys():
            self._publish(
                self.documents[path], self.findings(path), problems if path == root else []
            )

    def _check_with_importers(
        self, root: str, texts: Mapping[str, str], stop: Stop
    ) -> tuple[RootResult, list[str]]:
        checked = self.checker.check(root, texts, stop)
        importers = self.checker.importers(root, texts, stop) if root in texts else []
        return checked, importers

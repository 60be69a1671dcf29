"""What is checked when: one job at a time, in a thread, and none that nobody wants any more.

The event loop never waits for a check. A change stops the job that is under way, if the changed
file has to do with it; a file is checked again when there was no change for a moment.
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
from fsdplint.server.analysis import Checked, Seen, Stop, Workspace, merged
from fsdplint.source.files import Problem

T = TypeVar("T")

PAUSE = 0.05  # seconds without a change before a file is checked; longer where checks take long
LONGEST_PAUSE = 1.0
ATTEMPTS = 3  # to answer a request while the documents change


@dataclass
class Document:
    """A document that is open in the editor. `path` is a real path."""

    uri: str
    path: str
    version: int
    text: str

    @property
    def code(self) -> str:
        """What its findings stand in."""
        return self.text


@dataclass
class _Job:
    root: str | None  # None for a request
    texts: Mapping[str, str]
    stop: threading.Event = field(default_factory=threading.Event)


def _is_in(problem: Problem, root: str) -> bool:
    return problem.path == root or problem.path.startswith(f"{root}:cell ")


class Schedule:
    """The open documents, and what is known about them."""

    def __init__(
        self,
        workspace: Workspace,
        publish: Callable[[Document, list[Seen], list[Problem]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Nothing is done before `start`.

        Args:
            workspace: what checks.
            publish: gets the findings of a document, and what kept it from being checked.
            failed: gets what a check raised: wrong settings, or a defect.
        """
        self.workspace = workspace
        self.documents: dict[str, Document] = {}
        self.checked: dict[str, Checked] = {}
        self._publish = publish
        self._failed = failed
        self._due: dict[str, float] = {}  # roots that are to be checked, and not before when
        self._took: dict[str, float] = {}
        self._job: _Job | None = None
        self._requests: list[Callable[[], object]] = []
        self._wake = asyncio.Event()
        self._executor = ThreadPoolExecutor(1, "fsdplint-check")
        self._lock = asyncio.Lock()  # one job at a time
        self._task: asyncio.Task[None] | None = None
        self._stale = False  # whether files changed on the disk
        self._waiting = 0  # requests that wait for the thread

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._job is not None:
            self._job.stop.set()
        if self._task is not None:
            self._task.cancel()
        self._executor.shutdown(wait=False)

    # What the editor tells --------------------------------------------------------------------

    def changed(self, document: Document) -> None:
        """A document was opened, or has another text."""
        self.documents[document.path] = document
        self._interrupt(document.path)
        took = self._took.get(document.path, 0.0)
        self._plan(document.path, min(max(PAUSE, took / 2), LONGEST_PAUSE))

    def closed(self, path: str) -> None:
        document = self.documents.pop(path, None)
        self._interrupt(path)
        self.checked.pop(path, None)
        self._due.pop(path, None)
        for other in self.documents:  # each may have to do with this file as it is on the disk
            self._plan(other)
        if document is not None:
            self._publish(document, [], [])
        for root, checked in list(self.checked.items()):
            if root not in self.documents and not checked.read & self.documents.keys():
                del self.checked[root]  # it was only checked for the sake of this document
            elif path in checked.read:
                self._plan(root)

    def forget(self) -> None:
        """Files changed on the disk, or the settings did."""
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
            known = self.checked.get(job.root)
            if known is not None and path not in known.read:
                return
            self._plan(job.root)
        job.stop.set()

    # What is known -----------------------------------------------------------------------------

    def findings(self, path: str) -> list[Seen]:
        """What is known of a document, at its places in the text as it is."""
        document = self.documents.get(path)
        return [] if document is None else merged(path, document.code, self.checked.values())

    def current(self, path: str) -> bool:
        """Whether a document was checked as it is now."""
        document, checked = self.documents.get(path), self.checked.get(path)
        if document is None or checked is None or path in self._due:
            return False
        return checked.texts.get(path) == document.text

    async def ask(self, work: Callable[[Mapping[str, str], Stop], T]) -> tuple[T, bool] | None:
        """Have something worked out from the documents as they are, before further checks.

        Gives it only if they are still the same afterwards; None where they go on changing.
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
                        return result, True
            finally:
                self._waiting -= 1
                self._wake.set()
        return None

    # The work ---------------------------------------------------------------------------------

    def _texts(self) -> dict[str, str]:
        return {path: document.text for path, document in self.documents.items()}

    async def _in_thread(self, job: _Job, work: Callable[[Mapping[str, str], Stop], T]) -> T:
        self._job = job

        def whole() -> T:
            if self._stale:
                self._stale = False
                self.workspace.forget()
            return work(job.texts, job.stop.is_set)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, whole)
        finally:
            self._job = None

    async def _run(self) -> None:
        while True:
            root = await self._next()
            async with self._lock:
                if self._due.pop(root, None) is not None:
                    await self._check(root)

    async def _next(self) -> str:
        """The root to check next, when its time has come: open documents first."""
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
        begun = time.monotonic()
        try:
            checked, importers = await self._in_thread(job, lambda t, s: self._both(root, t, s))
        except Stopped:
            return  # whoever stopped it has planned it again
        except Exception as error:
            self._failed(error)
            return
        self._took[root] = time.monotonic() - begun
        before = self.checked.get(root)
        unread = [problem for problem in checked.problems if _is_in(problem, root)]
        if unread and before is not None and root not in checked.read:
            return  # half a statement: what was found before stays where it was
        self.checked[root] = checked
        for one in importers:
            known = self.checked.get(one)
            if known is None or any(known.texts.get(p) != t for p, t in job.texts.items()):
                self._due.setdefault(one, time.monotonic() + LONGEST_PAUSE / 2)
        concerned = checked.read | (before.read if before is not None else frozenset()) | {root}
        for path in concerned & self.documents.keys():
            self._publish(self.documents[path], self.findings(path), unread if path == root else [])

    def _both(self, root: str, texts: Mapping[str, str], stop: Stop) -> tuple[Checked, list[str]]:
        checked = self.workspace.check(root, texts, stop)
        importers = self.workspace.importers(root, texts, stop) if root in texts else []
        return checked, importers

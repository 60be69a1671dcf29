"""The files that are examined together, and what holds for them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.config.options import DEFAULT, Options
from fsdplint.source.files import MAX_BYTES

if TYPE_CHECKING:
    from fsdplint.discovery.importers import ProjectIndex
    from fsdplint.engine.filter import FindingFilter
    from fsdplint.source.source import Source


@dataclass(frozen=True)
class Effort:
    """How much work is wanted.

    Attributes:
        fixes: whether the fixes are computed too. The files that import those of the workspace are
            read only for fixes.
        known: sources of an earlier program. A source whose text is the same is not parsed again.
        stop: polled; `Stopped` is raised once it returns True.
    """

    fixes: bool = True
    known: Mapping[str, Source] = field(default_factory=dict)
    stop: Callable[[], bool] | None = None

    def poll(self) -> None:
        """Raises Stopped."""
        if self.stop is not None and self.stop():
            from fsdplint.interpreter.frames import Stopped

            raise Stopped


COMPLETE = Effort()


@dataclass(frozen=True)
class Workspace:
    """The files that are examined together, and what holds for them.

    Attributes:
        paths: the files.
        overrides: texts to use instead of those on disk.
        options: which torch the program has to run on, and how it is fixed.
        projects: the files of their projects. Without it, no file that imports one of `paths` is
            read.
        editable: the real paths of the files that may be changed; by default those of `paths`. A
            fix that changes any other file is not applied.
        unsafe: whether unsafe fixes are applied.
        filter: decides which findings the settings, comments and baseline leave enabled; by
            default all are. A finding that is disabled is not fixed, and neither is its group.
        complete: whether all that the user named could be read. Where something is missing, no
            comment is reported as unused: it may suppress a finding there.
        effort: how much work is wanted.
        max_bytes: the largest size of code that is read.
        elsewhere: the real paths of files that are examined in other workspaces.
    """

    paths: Sequence[Path]
    overrides: Mapping[Path, str] = field(default_factory=dict)
    options: Options = DEFAULT
    projects: ProjectIndex | None = None
    editable: Container[str] | None = None
    unsafe: bool = False
    filter: FindingFilter | None = None
    complete: bool = True
    effort: Effort = COMPLETE
    max_bytes: int = MAX_BYTES
    elsewhere: Container[str] = ()

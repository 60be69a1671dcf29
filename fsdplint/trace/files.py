"""Events of plain files and folders, which are no checkpoints."""

from __future__ import annotations

from typing import ClassVar

from fsdplint.trace.base import Event, event


@event
class FileUsed(Event):
    """The program opened a file, or made a folder.

    action: "write" or "read" of a file, or "folder". A library that gets a folder of the program,
        or a path in it, counts as making this folder.
    path: the file or folder, or the code that computes its path; "" if unknown.
    folder: the folder of the path, in the same way.
    per_rank: whether the path differs, or may differ, between ranks.
    waited_at: the number of events before code out of sight may have waited for other ranks last.
    """

    kind: ClassVar[str] = "file-used"
    static_only: ClassVar[str] = "a recorder does not see plain files"
    action: str = ""
    path: str = ""
    folder: str = ""
    per_rank: bool = False
    waited_at: int = 0


def is_inside(folder: str, outer: str) -> bool:
    """Whether a folder is another one, or is in it. Both may be the code that computes the path."""
    if not outer:
        return False
    starts = (f"{outer}/", f"os.path.join({outer}, ", f"{outer.removesuffix(')')}, ")
    return folder == outer or folder.startswith(starts)

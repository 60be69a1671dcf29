"""What a process and those that it starts write: a hook for audit events, in `sitecustomize.py`.

Python runs that module when it starts, so that nothing comes before the hook.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

HOOK = """\
import os, sys

log = os.open(os.environ["AUDIT_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
changing = (
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate",
    "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr", "os.system", "os.exec",
    "os.posix_spawn", "os.spawn", "os.startfile", "shutil.", "tempfile.", "subprocess.", "socket.",
    "sqlite3.connect",
)


def watch(event, args):
    if event == "open":
        path, mode, flags = args
        if not isinstance(path, (str, bytes)) or path in (os.devnull, os.devnull.encode()):
            return
        if not isinstance(flags, int) or not flags & writing:
            return
    elif not event.startswith(changing) or event == "socket.__new__":
        return
    os.write(log, (repr([event, *map(str, args)]) + "\\n").encode("utf-8", "backslashreplace"))


sys.addaudithook(watch)
"""


class Audit:
    """The hook, and what it saw."""

    def __init__(self, folder: Path) -> None:
        """folder: a new one, for the hook and its log."""
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(HOOK)
        self.log = folder / "log"
        root = str(Path(__file__).parent.parent)
        self.environment = {
            "AUDIT_LOG": str(self.log),
            "PYTHONPATH": os.pathsep.join([str(folder), root]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def seen(self, *allowed: Path) -> list[list[str]]:
        """The events since it was last asked, but for those at or below some paths."""
        events = [ast.literal_eval(line) for line in self.log.read_text().splitlines()]
        self.log.write_text("")
        tops = [str(path) for path in allowed]

        def is_allowed(event: list[str]) -> bool:
            names = event[1:3] if event[0] in ("os.rename", "os.link") else event[1:2]
            paths = [os.path.realpath(name) for name in names]
            return all(
                any(path == top or path.startswith(top + os.sep) for top in tops) for path in paths
            )

        return [event for event in events if not is_allowed(event)]

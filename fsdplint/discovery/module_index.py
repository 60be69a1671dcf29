"""The modules of a project by their names, for imports that only a longer search path resolves.

A launcher that sets `PYTHONPATH`, or a program that adds to `sys.path`, makes the modules of any
folder importable. Which folder that is, is seldom written where it can be read. So a module that no
folder of the usual search path has is taken from elsewhere in the project if exactly one file there
has its path, and defines the imported name.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from fsdplint.discovery.walk import DEFAULT_EXCLUDES
from fsdplint.source.files import Unreadable
from fsdplint.source.folders import Folder, is_marked, project_root

# torch is modelled, so it is never a project, not even in its own repository.
LIBRARY = "torch"
INSTALLED = frozenset(["site-packages", "dist-packages"])  # folders of packages
MAX_FOLDERS = 1_000  # of a project; in a larger one no such module is searched
PACKAGE = "__init__"


class ModuleIndex:
    """Finds modules anywhere in projects."""

    def __init__(self, read: Callable[[Path], bytes]) -> None:
        """read: reads the content of a file; raises Unreadable."""
        self._read = read
        self._modules: dict[str, dict[str, list[str]]] = {}
        self._roots: dict[str, str] = {}

    def find(self, importer: str, parts: Sequence[str], name: str | None = None) -> str | None:
        """The only file that is the module `parts` in the project of a file.

        None if there is none or several, and for modules of Python and torch.

        Args:
            importer: the file, absolute.
            parts: the parts of the module's name.
            name: what the file has to define; with None, the module's name has to have several
                parts.
        """
        top = parts[0] if parts else LIBRARY
        if top == LIBRARY or top in sys.stdlib_module_names or (name is None and len(parts) < 2):
            return None
        folder = os.path.dirname(importer)
        if not INSTALLED.isdisjoint(folder.split(os.sep)):
            return None
        found = self._module_name(folder, parts)
        if found is None or found == importer:
            return None
        return found if name is None or self._defines(found, name) else None

    def defining(self, importer: str, name: str) -> list[str]:
        """The other files of the project of a file that define a name at their top level."""
        modules = self._of_project(os.path.dirname(importer))
        files = (f"{stem}.py" for stems in modules.values() for stem in stems)
        return sorted(one for one in files if one != importer and self._defines(one, name))

    def _module_name(self, folder: str, parts: Sequence[str]) -> str | None:
        tail = os.sep + os.path.join(*parts)
        modules = self._of_project(folder)
        found = [
            stem + ".py"
            for name in (parts[-1], PACKAGE)
            for stem in modules.get(name, ())
            if stem.removesuffix(os.sep + PACKAGE).endswith(tail)
        ]
        return found[0] if len(found) == 1 else None

    def _defines(self, file: str, name: str) -> bool:
        """Whether a file has a definition of a name, or an assignment to it, at its top level."""
        try:
            return _definition(name).search(self._read(Path(file))) is not None
        except Unreadable:
            return False

    def _of_project(self, folder: str) -> dict[str, list[str]]:
        """The paths of a project's modules without their suffix, by the last part."""
        if folder not in self._roots:
            self._roots[folder] = str(project_root(Path(folder)))
        root = self._roots[folder]
        if root not in self._modules:
            self._modules[root] = _modules(root)
        return self._modules[root]


def _modules(root: str) -> dict[str, list[str]]:
    if not is_marked(Path(root)):
        return {}
    found: dict[str, list[str]] = {}
    todo = [root]
    for number, path in enumerate(todo):  # the loop extends it
        if number > MAX_FOLDERS:
            return {}
        folder = Folder(path)
        for name in folder.names:
            if name.endswith(".py"):
                found.setdefault(name[:-3], []).append(os.path.join(path, name[:-3]))
            elif "." not in name and name not in DEFAULT_EXCLUDES:
                if folder.has_folder(name) and not os.path.islink(os.path.join(path, name)):
                    todo.append(os.path.join(path, name))
    return found


@cache
def _definition(name: str) -> re.Pattern[bytes]:
    word = re.escape(name.encode("utf-8", "surrogatepass"))
    return re.compile(
        rb"^(?:(?:async[ \t]+)?def|class)[ \t]+%b\b|^%b[ \t]*(?::[^=\n]*)?=(?!=)" % (word, word),
        re.MULTILINE,
    )

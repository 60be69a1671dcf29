"""fsdplint: a linter and auto-fixer for PyTorch FSDP training programs that proves its fixes."""

import os as _os
import typing as _typing

from fsdplint.version import __version__

if _typing.TYPE_CHECKING:
    from fsdplint.api import check as check
    from fsdplint.api import fix as fix
    from fsdplint.api import prove as prove

# In a checkout the rules stand beside this folder; installed, they are in it.
_beside = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))
if not _os.path.isdir(_os.path.join(__path__[0], "rules")) and _os.path.isfile(
    _os.path.join(_beside, "rules", "__init__.py")
):
    __path__.append(_beside)

__all__ = ["__version__", "check", "fix", "prove"]


def __getattr__(name: str) -> object:
    """The functions of `fsdplint.api`, which is imported when one of them is asked for."""
    if name in ("check", "fix", "prove"):
        from fsdplint import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

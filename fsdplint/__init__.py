"""fsdplint: a linter and auto-fixer for PyTorch FSDP training programs that proves its fixes."""

import os as _os

__version__ = "0.1.0"

# In a checkout the rules stand beside this folder; installed, they are in it.
_beside = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))
if not _os.path.isdir(_os.path.join(__path__[0], "rules")) and _os.path.isfile(
    _os.path.join(_beside, "rules", "__init__.py")
):
    __path__.append(_beside)

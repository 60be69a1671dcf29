"""`python -m fsdplint`."""

from __future__ import annotations

import os
import sys


def _leave_out_current_folder() -> None:
    """Import nothing from the current folder, which Python puts first for `python -m`: the files
    there are those that are checked, and may have the names of modules that fsdplint imports."""
    if getattr(sys.flags, "safe_path", False):  # Python did not put it there
        return
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it was removed, and nothing is imported from it
        return
    own = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir))
    if here != own and sys.path and os.path.realpath(sys.path[0]) == here:
        del sys.path[0]


if __name__ == "__main__":
    _leave_out_current_folder()
    from fsdplint.cli.process import start

    start(prog_name="python -m fsdplint")

"""The process of the command line: from its arguments to its exit code."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

from fsdplint.cli.main import main


def start(**arguments: Any) -> None:
    """Run the command line, and end the process with its exit code.

    The process ends without releasing its memory object by object: after the check of a large
    project, that takes a tenth of the whole time.

    arguments: those of `click.Command.main`.
    """
    try:
        main(**arguments)
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        code = ended.code
        atexit._run_exitfuncs()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            raise ended from None  # Python reports it at its own exit
        os._exit(code)

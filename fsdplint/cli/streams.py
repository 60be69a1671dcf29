"""What becomes of a command whose output nobody takes any more, or for which there is no room."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

CLEAN, FOUND, FAILED = 0, 1, 2  # exit codes: nothing found; findings; the job was not done


@contextlib.contextmanager
def streams() -> Iterator[None]:
    """Ends the process with a code where the operating system refuses something.

    A reader that has seen enough (`fsdplint ... | head -1`) ends it quietly with 0, as the reader
    of a compiler's or a searching tool's output does. All else, such as a full device, is said in
    one line.
    """
    _open_closed()
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout.fileno(), sys.stderr.fileno())
        sys.exit(0)
    except OSError as error:
        from fsdplint.source.debug import debugging

        if debugging():
            raise
        reason = error.strerror or str(error)
        where = error.filename if isinstance(error.filename, str) else _unnamed()
        with contextlib.suppress(OSError):
            print(f"error: {where}: {reason}", file=sys.stderr, flush=True)
        _discard(sys.stdout.fileno())
        sys.exit(FAILED)


def fail(message: str) -> NoReturn:
    """End the command, whose job cannot be done."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(FAILED)


def _open_closed() -> None:
    """Give the process the standard streams that it was started without (`>&-`): what is written
    to them goes nowhere, and what is read from them is an error.

    A file that is opened later would get the number of the missing one, and all that is meant for
    the stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _open_nowhere(number)
            mode = "w" if number else "r"
            stream = open(number, mode, errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def _open_nowhere(number: int) -> None:
    """Open a descriptor of this number, where there is none, for writing only."""
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)


def _unnamed() -> str:
    """What an error is about that names no file."""
    try:
        os.getcwd()
    except OSError:
        return "the current folder"
    return "standard output"


def _discard(*descriptors: int) -> None:
    """Have what is still in the buffers of streams go nowhere when the process ends."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in descriptors:
            os.dup2(nowhere, descriptor)

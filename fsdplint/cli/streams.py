"""Standard streams that are closed, full or no longer read; and exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

CLEAN, FOUND, FAILED = 0, 1, 2  # exit codes: no findings; findings; the job was not done


@contextlib.contextmanager
def streams() -> Iterator[None]:
    """End the process with an exit code if the operating system refuses to read or write.

    If the reader of the output ends first (`fsdplint ... | head -1`), the process ends quietly with
    0. Any other error, such as a full device, is reported in one line.
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
        where = error.filename if isinstance(error.filename, str) else _subject_without_file()
        with contextlib.suppress(OSError):
            print(f"error: {where}: {reason}", file=sys.stderr, flush=True)
        _discard(sys.stdout.fileno())
        sys.exit(FAILED)


def fail(message: str) -> NoReturn:
    """Print an error and end the process with `FAILED`."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(FAILED)


def _open_closed() -> None:
    """Open the standard streams that the process was started without (`>&-`). Writes to them are
    discarded, and reads raise.

    Otherwise a file that is opened later would get the descriptor of a missing stream, and with it
    the stream's output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _open_null(number)
            mode = "w" if number else "r"
            stream = open(number, mode, errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def _open_null(number: int) -> None:
    """Open a descriptor of this number for writing only, if there is none."""
    try:
        os.fstat(number)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        if null != number:
            os.dup2(null, number)
            os.close(null)


def _subject_without_file() -> str:
    """The subject of an error that names no file."""
    try:
        os.getcwd()
    except OSError:
        return "the current folder"
    return "standard output"


def _discard(*descriptors: int) -> None:
    """Discard the buffered output of streams when the process ends."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        for descriptor in descriptors:
            os.dup2(null, descriptor)

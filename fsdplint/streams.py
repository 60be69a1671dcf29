"""What becomes of a command whose output nobody takes any more, or for which there is no room."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

FAILED = 2
_DEBUG = "FSDPLINT_DEBUG"


@contextlib.contextmanager
def streams() -> Iterator[None]:
    """Ends the process with a code where the operating system refuses something.

    A reader that has seen enough (`fsdplint ... | head -1`) ends it quietly with 0, as the reader
    of a compiler's or a searching tool's output does. All else, such as a full device, is said in
    one line.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout.fileno(), sys.stderr.fileno())
        sys.exit(0)
    except OSError as error:
        if os.environ.get(_DEBUG):
            raise
        reason = error.strerror or str(error)
        where = error.filename if isinstance(error.filename, str) else "standard output"
        with contextlib.suppress(OSError):
            print(f"error: {where}: {reason}", file=sys.stderr, flush=True)
        _discard(sys.stdout.fileno())
        sys.exit(FAILED)


def _discard(*descriptors: int) -> None:
    """Have what is still in the buffers of streams go nowhere when the process ends."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in descriptors:
            os.dup2(nowhere, descriptor)

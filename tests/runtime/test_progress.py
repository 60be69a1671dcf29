"""What people see while programs run."""

from __future__ import annotations

import io
from pathlib import Path

from fsdplint.runtime.launch.progress import OnStandardError, Progress, line
from fsdplint.runtime.recorder.heartbeat import Beat, Heartbeat, read_beats


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def beats(*steps: int) -> dict[int, Beat]:
    return {rank: Beat(step) for rank, step in enumerate(steps)}


def test_how_far_the_ranks_are() -> None:
    assert line({}, 3.2) == "  starting, 3 s"
    assert line(beats(0, 0), 9.0) == "  before the first step, 9 s"
    assert line(beats(3, 3), 12.0, 8) == "  step 3 of 8, 12 s"
    assert line(beats(3, 2), 12.0) == "  rank 0 at step 3, rank 1 at step 2, 12 s"
    assert line(beats(7, 7, 6, 7, 7), 125.0) == "  steps 6 (rank 2) to 7, 00:02:05"


def test_nothing_but_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    stream = io.StringIO()
    progress = OnStandardError(stream)
    progress("running train.py")
    progress.follow(tmp_path)(3.0)
    progress.finish()
    assert stream.getvalue() == "running train.py\n"


def test_a_line_that_is_renewed_on_a_terminal(tmp_path: Path) -> None:
    stream = Terminal()
    progress = OnStandardError(stream)
    tick = progress.follow(tmp_path, 8)
    tick(1.0)
    rank = Heartbeat()
    rank.open(str(tmp_path), 0)
    rank.set_step(2)
    tick(2.0)
    progress.finish()
    assert stream.getvalue().split("\r\x1b[K") == ["", "  starting, 1 s", "  step 2 of 8, 2 s", ""]
    Progress().follow(tmp_path)(3.0)  # says nothing


def test_the_heartbeat_of_a_rank(tmp_path: Path) -> None:
    rank = Heartbeat()
    rank.collective("all_gather")  # not opened: there is nobody to show it to
    rank.open(str(tmp_path), 7)
    assert read_beats(tmp_path) == {7: Beat()}
    rank.set_step(3)
    rank.collective("all_gather")
    rank.collective("reduce_scatter")
    rank.note_end("[Errno 28] No space left on device")
    beat = Beat(3, 2, "reduce_scatter", "[Errno 28] No space left on device")
    assert read_beats(tmp_path) == {7: beat}
    assert beat.last == "reduce_scatter (number 2)"
    (tmp_path / "pulse9").write_bytes(b"")  # a rank that is just beginning
    assert read_beats(tmp_path) == {7: beat}

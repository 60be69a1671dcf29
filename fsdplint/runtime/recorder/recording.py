"""The recording of one run: all that its watchers know, and the one handle to it.

The watchers in `patches` are put into torch once a process, and find the recording by `current()`
when they are called. A process may run several programs, one after the other: each begins with a
new recording, so that nothing of one run is taken for a part of the next.

What a run cannot leave behind is no part of it. The emulation and the simulation are switches of
the process: to turn them on replaces functions of torch for good.
"""

from __future__ import annotations

from fsdplint.runtime.recorder.final_state import FinalState
from fsdplint.runtime.recorder.heartbeat import Heartbeat
from fsdplint.runtime.recorder.launcher_arguments import LauncherArguments
from fsdplint.runtime.recorder.layouts import Layouts
from fsdplint.runtime.recorder.loader_pass import LoaderPass
from fsdplint.runtime.recorder.measures import Measures
from fsdplint.runtime.recorder.missed_parameters import MissedParameters
from fsdplint.runtime.recorder.objects import Objects
from fsdplint.runtime.recorder.output_views import OutputViews
from fsdplint.runtime.recorder.outside_files import OutsideFiles
from fsdplint.runtime.recorder.parameter_marks import ParameterMarks
from fsdplint.runtime.recorder.recorder import Recorder
from fsdplint.runtime.recorder.replicas import Replicas
from fsdplint.runtime.recorder.running_calls import RunningCalls
from fsdplint.runtime.recorder.summed_losses import SummedLosses
from fsdplint.runtime.recorder.untouched_buffers import UntouchedBuffers


class Recording:
    """What is known of one run of a program on this rank.

    Attributes:
        recorder: writes the record.
        heartbeat: shows the step and the last collective while the program runs.
        objects: the names of modules, optimizers and state dicts, and who owns what.
        calls: the calls of modules that are running now.
        rendezvous: where the ranks of a program meet that would have started them itself.
    """

    def __init__(self) -> None:
        self.heartbeat = Heartbeat()
        self.recorder = Recorder(self.heartbeat)
        self.objects = Objects(self.recorder)
        self.final_state = FinalState(self.recorder, self.objects)
        self.layouts = Layouts(self.recorder, self.objects, self.final_state)
        self.measures = Measures(self.recorder, self.objects, self.layouts, self.heartbeat)
        self.missed_parameters = MissedParameters(self.recorder, self.objects)
        self.replicas = Replicas(self.recorder, self.objects, self.measures)
        self.outside_files = OutsideFiles(self.recorder)
        self.calls = RunningCalls()
        self.untouched_buffers = UntouchedBuffers()
        self.output_views = OutputViews()
        self.losses = SummedLosses()
        self.loader_pass = LoaderPass()
        self.marks = ParameterMarks()
        self.arguments = LauncherArguments()
        self.rendezvous: dict[str, str] = {}


_recording = Recording()


def current() -> Recording:
    """The recording of the run that is going on, or idle before the first."""
    return _recording


def begin() -> Recording:
    """Begin the recording of another run."""
    global _recording
    _recording = Recording()
    _recording.measures.peak.restart()  # only the process of a recorded program may do that
    return _recording

"""The recording of one run: the state of all watchers, and the handle to it.

The watchers in `patches` are installed once in a process and get the recording by `current()`. A
process may run several programs, one after the other. Each begins with a new recording, so that no
state of one run affects the next.

The emulation and the simulation are states of the process and not of a recording, because they
replace functions of torch for good.
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
from fsdplint.runtime.recorder.recorder import Entry, Recorder
from fsdplint.runtime.recorder.replicas import Replicas
from fsdplint.runtime.recorder.running_calls import RunningCalls
from fsdplint.runtime.recorder.summed_losses import SummedLosses
from fsdplint.runtime.recorder.uninitialized_parameters import UninitializedParameters
from fsdplint.runtime.recorder.untouched_buffers import UntouchedBuffers
from fsdplint.trace import Loaded


class Recording:
    """The state of one run of a program on this rank.

    Attributes:
        recorder: writes the record.
        heartbeat: shows the step and the last collective while the program runs.
        objects: the names of modules, optimizers and state dicts, and who owns what.
        calls: the calls of modules that are running now.
        unreturned: the loads whose result, None, the program keeps.
        rendezvous: the address and port of the launcher, for programs that spawn their ranks.
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
        self.uninitialized = UninitializedParameters()
        self.output_views = OutputViews()
        self.losses = SummedLosses()
        self.loader_pass = LoaderPass()
        self.marks = ParameterMarks()
        self.arguments = LauncherArguments()
        self.unreturned: list[Entry[Loaded]] = []
        self.rendezvous: dict[str, str] = {}


_recording = Recording()


def current() -> Recording:
    """The recording of the current run; an idle one before the first run."""
    return _recording


def begin() -> Recording:
    """Begin the recording of a new run."""
    global _recording
    _recording = Recording()
    _recording.measures.peak.restart()  # only the process of a recorded program may do that
    return _recording

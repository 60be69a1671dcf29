"""Runs the user's program on this rank under the recorder."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fsdplint.runtime.launch import line_coverage, processes


@dataclass
class Options:
    """The options of `python -m fsdplint.runtime`; see its `--help`."""

    record: str
    device: str = "auto"
    steps: int | None = None
    seed: int | None = None
    module: bool = False
    target: str = ""
    args: tuple[str, ...] = ()
    parameters: bool = True
    account: bool = False
    simulate: int | None = None
    oracle: bool = False
    noise: float = 0.0


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of ranks, from the launcher's environment."""
    env = os.environ
    rank = env.get("RANK") or env.get("SLURM_PROCID") or env.get("PMI_RANK") or "0"
    world = env.get("WORLD_SIZE") or env.get("SLURM_NTASKS") or env.get("PMI_SIZE") or "1"
    return int(rank), int(world)


def prepare() -> None:
    """Import torch and install the watchers: the part that several runs can share."""
    # Import these here so that the user's `from ... import name` gets the watched functions.
    import torch
    import torch.distributed
    import torch.distributed.algorithms._checkpoint.checkpoint_wrapper
    import torch.distributed.checkpoint
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.device_mesh
    import torch.distributed.fsdp
    import torch.distributed.tensor
    import torch.optim.swa_utils  # noqa: F401

    from fsdplint.runtime.emulation import activation
    from fsdplint.runtime.recorder.patches import install
    from fsdplint.runtime.recorder.recording import current

    for private in ("torch.distributed._composable.fsdp", "torch.distributed._composable"):
        try:
            __import__(private)
        except ImportError:
            continue
    activation.install()
    install()
    os.register_at_fork(after_in_child=lambda: current().recorder.forget())


def start(options: Options) -> None:
    """Begin a recording, open this rank's record, and apply the options."""
    from fsdplint.runtime.emulation import activation as emulation
    from fsdplint.runtime.emulation.switch import EMULATION
    from fsdplint.runtime.recorder import data_parallel_reference, gradient_noise
    from fsdplint.runtime.recorder.recording import begin

    rank, world = rank_and_world()
    recording = begin()
    # With accounts, `Measure` ends the program.
    recording.measures.limit = None if options.account else options.steps
    recording.final_state.enabled = options.parameters
    os.makedirs(options.record, exist_ok=True)
    # On SIGUSR1 a rank writes its stack, even if it hangs in a collective.
    stack = open(os.path.join(options.record, f"stack{rank}.txt"), "w")  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=False, chain=False)
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    emulation.choose("cpu" if options.simulate else options.device, local_ranks)
    if options.seed is not None:
        _seed_generators(options.seed)
    recording.recorder.open(options.record, rank, world, EMULATION.on)
    if options.oracle:
        data_parallel_reference.install()
    if options.noise:
        gradient_noise.install(options.noise)
    if options.simulate is not None:
        recording.recorder.on = False  # without values there is nothing to compare
        from fsdplint.runtime.simulation import activation as simulation

        simulation.install()


def _seed_generators(seed: int) -> None:
    import random

    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)


def run(options: Options) -> int:
    """Run the program and return its exit code; prints exceptions as Python does."""
    from fsdplint.runtime.emulation.switch import explain_error
    from fsdplint.runtime.recorder.patches.files import note_use_of_result
    from fsdplint.runtime.recorder.patches.tensors import note_error
    from fsdplint.runtime.recorder.recording import current

    recording = current()
    code, status, error = 0, "ok", None
    try:
        with _accounting(options):
            execute(options)
    except SystemExit as exit_:
        code = _exit_code(exit_)
        status = "ok" if code == 0 else "exit"
        error = {**describe_error(exit_), "traceback": ""} if code else None
    except BaseException as raised:
        code, status = 1, "raised"
        try:
            note_error(raised)
            note_use_of_result(raised)
        except Exception:
            recording.recorder.record_error()
        raised = explain_error(raised)
        error = describe_error(raised)
        _print_error(raised)
    recording.recorder.in_backward = 0
    if status == "ok" and options.simulate is None:
        recording.final_state.capture()
    recording.recorder.close(status, code=code, **(error or {}))
    return code


@contextlib.contextmanager
def _accounting(options: Options) -> Iterator[None]:
    """Simulate the other ranks and count what this rank holds and sends, if the options ask."""
    simulate = options.simulate is not None
    if not simulate and not options.account:
        yield
        return
    from fsdplint.runtime.simulation.activation import account_steps, simulate_rank

    with contextlib.ExitStack() as stack:
        if simulate:
            stack.enter_context(simulate_rank(*rank_and_world()))
        stack.enter_context(account_steps(options.steps))
        yield


def execute(options: Options) -> None:
    """Run the target as `__main__`, as Python does."""
    lines = line_coverage.install()
    if options.module:
        sys.argv = [options.target, *options.args]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(options.target, run_name="__main__", alter_sys=True)
        return
    path = os.path.abspath(options.target)
    sys.argv = [options.target, *options.args]
    sys.path.insert(0, os.path.dirname(path))
    with open(path, "rb") as file:
        source = file.read()
    if lines is None:
        code = compile(source, path, "exec", dont_inherit=True)
    else:
        code = lines.compile(source, path)
    module = type(sys)("__main__")
    module.__dict__.update(
        __file__=path, __builtins__=__builtins__, __loader__=None, __spec__=None, __cached__=None
    )
    # Worker processes and pickle look the user's classes up in `__main__`.
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _exit_code(exit_: SystemExit) -> int:
    if exit_.code is None:
        return 0
    if isinstance(exit_.code, int):
        return exit_.code
    print(exit_.code, file=sys.stderr)
    return 1


def describe_error(raised: BaseException) -> dict[str, Any]:
    """An exception for the record: type, text, traceback and the user's innermost line."""
    from fsdplint.runtime.recorder.sites import USER, kind_of

    at = None
    for frame, line in traceback.walk_tb(raised.__traceback__):
        if kind_of(frame.f_code.co_filename) == USER:
            at = [frame.f_code.co_filename, line]
    exception = traceback.TracebackException.from_exception(raised)
    _remove_own_frames(exception)
    text = "".join(exception.format())
    return {
        "error": type(raised).__name__,
        "message": str(raised)[:4000],
        "traceback": text[-20000:],
        "error_at": at,
    }


def _remove_own_frames(exception: traceback.TracebackException) -> None:
    """Remove the frames of the watchers, which do not help the user."""
    from fsdplint.runtime.recorder.sites import OWN, kind_of

    one: traceback.TracebackException | None = exception
    while one is not None:
        frames = [frame for frame in one.stack if kind_of(frame.filename) != OWN]
        one.stack = traceback.StackSummary.from_list(frames)
        one = one.__cause__ or one.__context__


def _print_error(raised: BaseException) -> None:
    from fsdplint.runtime.recorder.sites import OWN, kind_of

    trace = raised.__traceback__
    while trace is not None and kind_of(trace.tb_frame.f_code.co_filename) == OWN:
        trace = trace.tb_next
    traceback.print_exception(type(raised), raised, trace)


def exit_process(code: int, pause: float) -> None:
    """End the process without the race of gloo's threads at exit, after flushing its output."""
    import atexit

    try:
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    if pause:
        time.sleep(pause)
    os._exit(code)


USAGE = """usage: python -m fsdplint.runtime [options] script.py [args...]
       python -m fsdplint.runtime [options] -m package.module [args...]

Runs a training program on this rank and records what happens to its models.
Start it with any launcher, e.g.  torchrun --nproc-per-node 2 -m fsdplint.runtime train.py

options:
  --record DIR   folder for the records (default: fsdplint-record)
  --device auto|cpu|cuda   cpu: a program written for CUDA runs on the CPU (default: auto)
  --steps N      end the program after N optimizer steps
  --seed S       seed torch, random and numpy, and ask torch for deterministic algorithms
  --no-parameters   do not gather the full parameters at the end
  --account      count the bytes of tensors and of collectives in every step
  --oracle       average gradients of whole parameters instead of sharding them
  --noise SIZE   change gradients by this share before each step, as rounding does
  --simulate N   simulate rank 0 of N, without other ranks and without values of tensors
"""


class UsageError(Exception):
    """The command line cannot be understood; the text says why."""


def parse(argv: Sequence[str]) -> Options:
    """Parse the options before the script's name; all further arguments belong to the script.

    Raises:
        UsageError: the command line is invalid.
    """
    options = Options(record="fsdplint-record")
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help"):
            raise UsageError("")
        if word == "--no-parameters":
            options.parameters = False
            continue
        if word in ("--account", "--oracle"):
            setattr(options, word[2:], True)
            continue
        name, _, value = word.partition("=")
        if name in ("--record", "--device", "--steps", "--seed", "--simulate", "--noise"):
            if not value:
                if not rest:
                    raise UsageError(f"{name} needs a value")
                value = rest.pop(0)
            _set(options, name[2:], value)
        elif word == "-m":
            options.module = True
        elif word.startswith("-"):
            raise UsageError(f"unknown option {word}")
        else:
            options.target, options.args = word, tuple(rest)
            return options
    raise UsageError("no script is given")


def as_rank_0_of(world: int) -> None:
    """Set the environment of a launcher for rank 0 on machines with eight devices."""
    os.environ.update(RANK="0", LOCAL_RANK="0", GROUP_RANK="0", WORLD_SIZE=str(world))
    os.environ["LOCAL_WORLD_SIZE"] = str(min(world, 8))
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")


def _set(options: Options, name: str, value: str) -> None:
    if name in ("steps", "seed", "simulate", "noise"):
        try:
            setattr(options, name, float(value) if name == "noise" else int(value))
        except ValueError:
            raise UsageError(f"--{name} needs a number, not {value!r}") from None
    elif name == "device" and value not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device is auto, cpu or cuda, not {value!r}")
    else:
        setattr(options, name, value)


def main(argv: Sequence[str]) -> None:
    """Entry of `python -m fsdplint.runtime`; ends the process."""
    if os.environ.pop(processes.LAUNCHED, ""):
        processes.die_with_parent()
    try:
        options = parse(argv)
    except UsageError as error:
        print(f"{error}\n\n{USAGE}" if str(error) else USAGE, file=sys.stderr)
        sys.exit(2)
    options.record = os.path.abspath(options.record)
    if options.simulate is not None:
        as_rank_0_of(options.simulate)
    prepare()
    start(options)
    code = run(options)
    exit_process(code, pause=0.4)

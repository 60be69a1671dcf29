"""What `with` binds, and values that typing functions hand on."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, program

from fsdplint.trace import Called, GradMode, LoaderIterated, Sharded, StateTaken

TRAINER = """
class Trainer:
    def __init__(self, model):
        self.model = model

    def __enter__(self):
        return {entered}

    def __exit__(self, *exception):
        pass

    def fit(self):
        fully_shard(self.model)


with Trainer(Net()) as trainer:
    {call}
"""


@pytest.mark.parametrize(
    ("entered", "call"), [("self", "trainer.fit()"), ("self.model", "fully_shard(trainer)")]
)
def test_a_with_statement_binds_what_enter_returns(tmp_path: Path, entered: str, call: str) -> None:
    found = program(tmp_path, TRAINER.format(entered=entered, call=call))
    (sharded,) = found.traces[0].of(Sharded)
    assert class_of(found, sharded.module) == "Net"


@pytest.mark.parametrize(
    "value", ["typing.cast('nn.Module', Net())", "typing.cast(val=Net(), typ=nn.Module)"]
)
def test_a_cast_is_its_argument(tmp_path: Path, value: str) -> None:
    found = program(tmp_path, f"import typing\nfully_shard({value})\n")
    (sharded,) = found.traces[0].of(Sharded)
    assert class_of(found, sharded.module) == "Net"


@pytest.mark.parametrize(
    "made",
    [
        "torch.profiler.record_function('step')",
        "torch.cuda.stream(torch.cuda.Stream())",
        "torch.device('cpu')",
        "torch.autograd.graph.save_on_cpu()",
        "warnings.catch_warnings()",
        "open('log')",
        "threading.Lock()",
        "contextlib.redirect_stdout(None)",
        "tqdm.tqdm(total=4)",
        "Timer('step')",
        "watch.phase('step')",
        "Outer()",
    ],
)
def test_these_contexts_keep_the_autograd_mode(tmp_path: Path, made: str) -> None:
    assert _modes(tmp_path, made) == {GradMode.ON}


@pytest.mark.parametrize(
    ("made", "mode"),
    [
        ("unknown()", None),
        ("library.thing()", None),
        ("NoGradTimer()", None),
        ("getattr(torch, unknown)()", None),
        ("importlib.import_module(unknown).mode()", None),
        ("contextlib.contextmanager(unknown)()", None),
        ("copy.copy(unknown)", None),
        ("next(unknown)", None),
        ("functools.reduce(unknown, [])", None),
        ("torch.load('context.pt')", None),
        ("torch.hub.load('owner/name', 'model').mode()", None),
        ("torch.utils._python_dispatch.TorchDispatchMode()", None),
        ("Evaluation()", GradMode.OFF),
        ("torch.autograd.no_grad()", GradMode.OFF),
    ],
)
def test_these_contexts_may_change_the_autograd_mode(
    tmp_path: Path, made: str, mode: GradMode | None
) -> None:
    assert _modes(tmp_path, made) == {mode}


CLASSES = """
import contextlib, copy, functools, importlib, threading, warnings
import library, tqdm
import torch.autograd


class Timer:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def phase(self, name):
        return Timer(name)


class Outer(contextlib.AbstractContextManager):
    def __enter__(self):
        self.inner = Timer("inner")
        return self.inner.__enter__()

    def __exit__(self, *error):
        self.inner.__exit__(*error)


class NoGradTimer(torch.no_grad):
    def __enter__(self):
        return super().__enter__()


class Evaluation:
    def __enter__(self):
        self.mode = torch.no_grad()
        self.mode.__enter__()

    def __exit__(self, *error):
        self.mode.__exit__(*error)


watch = Timer("all")
"""


def _modes(tmp_path: Path, made: str) -> set[GradMode | None]:
    """The autograd modes of the forwards in a context, after which gradients are on again."""
    body = f"{CLASSES}model = fully_shard(Net())\nwith {made} as held:\n    model(torch.ones(1))\nmodel(torch.ones(1))\n"
    calls = [call for call in program(tmp_path, body).traces[0].of(Called) if call.inside is None]
    inside, after = calls
    assert after.grad is GradMode.ON
    return {inside.grad}


@pytest.mark.parametrize(
    "made", ["tqdm(loader)", "tqdm(enumerate(loader), total=3)", "track(loader)", "tqdm(Loader())"]
)
def test_a_progress_bar_gives_the_batches_of_its_loader(tmp_path: Path, made: str) -> None:
    body = f"""
from rich.progress import track
from tqdm.auto import tqdm
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

sampler = DistributedSampler(data)
loader = DataLoader(data, sampler=sampler)


class Loader:
    def __iter__(self):
        yield from loader


for epoch in range(3):
    with {made} as bar:
        for batch in bar:
            pass
"""
    assert program(tmp_path, body).traces[0].of(LoaderIterated)


def test_a_contextmanager_runs_around_its_block(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        from contextlib import contextmanager
        from torch.distributed.fsdp import StateDictType, ShardedStateDictConfig

        @contextmanager
        def sharded(m):
            with FSDP.state_dict_type(m, StateDictType.SHARDED_STATE_DICT):
                yield

        model = FSDP(Net())
        with sharded(model):
            inside = model.state_dict()
        outside = model.state_dict()
        """,
    )
    layouts = [e.layout.value for e in found.traces[0].of(StateTaken)]
    assert layouts == ["sharded", "full"]


def test_both_sides_of_a_contextmanager_run_the_block(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        from contextlib import contextmanager

        @contextmanager
        def accumulating(m, step, steps):
            last = step + 1 == steps
            if last or not hasattr(m, "set_requires_gradient_sync"):
                yield
            else:
                m.set_requires_gradient_sync(False)
                try:
                    yield
                finally:
                    m.set_requires_gradient_sync(True)

        model = Net()
        fully_shard(model)
        for step in range(args.steps):
            with accumulating(model, step, args.steps):
                model(x).sum().backward()
        """,
    )
    assert len(found.traces) == 1
    switches = {"SyncSwitched", "BackwardRun"}
    kinds = [(type(e).__name__, getattr(e, "enabled", None)) for e in found.traces[0]]
    order = [(kind, enabled) for kind, enabled in kinds if kind in switches]
    assert order[:4] == [
        ("SyncSwitched", False),
        ("BackwardRun", None),
        ("SyncSwitched", True),
        ("BackwardRun", None),
    ]

"""A rule finds a defect in each spelling of the program, by the values and not by the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import Called, OptimizerBuilt, Sharded

CHECKPOINT = """\
import os
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
dist.init_process_group("gloo")
model = fully_shard(nn.Linear(8, 8))
"""


@pytest.mark.parametrize(
    "code",
    [
        "class S:\n    def __init__(self):\n        self.one = 'last'\n        self.two = 'last'\ns = S()\n"
        "dcp.save({'m': get_model_state_dict(model)}, checkpoint_id=os.path.join('c', s.one))\n"
        "torch.load(os.path.join('c', s.two))\n",
        "here, there, end = 'c', 'c', 'st'\n"
        "dcp.save({'m': get_model_state_dict(model)}, checkpoint_id=os.path.join(here, 'last'))\n"
        "torch.load(os.path.join(there, f'la{end}'))\n",
        "def at(folder, name):\n    return os.path.join(folder, name)\n"
        "dcp.save({'m': get_model_state_dict(model)}, checkpoint_id=at('c', 'last'))\n"
        "torch.load(os.path.join('c', 'last'))\n",
        "folder = os.environ['FOLDER']\nalso = folder\n"
        "dcp.save({'m': get_model_state_dict(model)}, checkpoint_id=os.path.join(folder, 'last'))\n"
        "torch.load(os.path.join(also, 'last'))\n",
    ],
)
def test_the_same_path_is_read_in_another_format(tmp_path: Path, code: str) -> None:
    assert len(findings(program(tmp_path, CHECKPOINT + code), "FSDP316")) == 1


def test_another_path_is_not(tmp_path: Path) -> None:
    code = (
        "def at(folder, name):\n    return os.path.join(folder, name)\n"
        "dcp.save({'m': get_model_state_dict(model)}, checkpoint_id=at('c', 'last'))\n"
        "torch.load(at('c', 'first'))\n"
    )
    assert not findings(program(tmp_path, CHECKPOINT + code), "FSDP316")


@pytest.mark.parametrize(
    "name",
    [
        "folder = functools.partial(os.path.join, 'c')(f'run-{time.time_ns()}')",
        "now = functools.partial(time.time_ns)\nfolder = os.path.join('c', str(now()))",
    ],
)
def test_a_clock_that_a_partial_reads_is_the_ranks_own(tmp_path: Path, name: str) -> None:
    code = f"import functools, time\n{name}\ndcp.save({{'m': model.state_dict()}}, checkpoint_id=folder)\n"
    assert findings(program(tmp_path, CHECKPOINT + code), "FSDP311")


SAVE = "dcp.save({'m': model.state_dict()}, checkpoint_id=folder)\n"


@pytest.mark.parametrize(
    "name",
    [
        "folder = f'run-{os.getpid()}'",
        "folder = os.path.join('c', 'epoch%d-%s' % (3, os.getpid()))",
        "folder = pathlib.Path('c') / str(uuid.uuid4())",
        "folder = 'c/' + uuid.uuid4().hex[:8]",
        "folder = tempfile.mkdtemp(prefix='run')",
        "folder = os.path.join(tempfile.mkdtemp(), 'last')",
        "folder = 'c/{}'.format(secrets.token_hex(4))",
        "folder = os.path.join('c', str(os.getpid()), 'last')",
        "folder = os.environ.get('RUN', f'run-{os.getpid()}')",
        "folder = os.path.join('c', os.getenv('RUN', uuid.uuid4().hex))",
        "folder = 'c/' + os.environ.get('RUN', time.strftime('%H%M%S'))",
    ],
)
def test_a_name_of_the_process_is_the_ranks_own(tmp_path: Path, name: str) -> None:
    code = f"import pathlib, secrets, tempfile, time, uuid\n{name}\n{SAVE}"
    assert findings(program(tmp_path, CHECKPOINT + code), "FSDP311")


@pytest.mark.parametrize(
    "name",
    [
        "names = [f'run-{os.getpid()}']\ndist.broadcast_object_list(names)\nfolder = names[0]",
        "names = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]\n"
        "dist.broadcast_object_list(names, src=0)\nfolder = names[0]",
        "log = f'log-{os.getpid()}'\nfolder = 'c'",
        "folder = tempfile.gettempdir()",
        "folder = os.environ.get('RUN') or 'c'",
        "folder = os.environ.get('RUN', args.folder)",
        "folder = os.environ.get('TORCHELASTIC_RUN_ID', f'run-{os.getpid()}')",
        "folder = os.environ.get('SLURM_JOB_ID', f'run-{os.getpid()}')",
        "folder = os.environ.get('RUN', f'run-{args.name}')",
    ],
)
def test_a_name_that_all_ranks_share_is_not(tmp_path: Path, name: str) -> None:
    code = (
        f"import argparse, tempfile\nargs = argparse.ArgumentParser().parse_args()\n{name}\n{SAVE}"
    )
    assert not findings(program(tmp_path, CHECKPOINT + code), "FSDP311")


def test_a_test_of_the_process_id_decides_nothing_by_rank(tmp_path: Path) -> None:
    code = "main = os.getpid()\nif os.getpid() == main:\n    dist.barrier()\n"
    assert not findings(program(tmp_path, CHECKPOINT + code), "FSDP501")


MODEL = """\
dist.init_process_group("gloo")
model = Net()
for layer in model.layers:
    fully_shard(layer)
fully_shard(model)
{given}
with model.no_sync() if hasattr(model, name) else torch.no_grad():
    model(torch.zeros(2, dtype=torch.long)).mean()
"""


@pytest.mark.parametrize("given, count", [
    ("name = 'head'", 1),
    ("name = 'no_sync'", 0),
    ("import os\nname = os.environ['NAME']", 0),
    ("import argparse\np = argparse.ArgumentParser()\np.add_argument('--name')\n"
     "name = p.parse_args().name", 0),
])  # fmt: skip
def test_a_test_of_an_unknown_attribute_may_ask_for_this_one(
    tmp_path: Path, given: str, count: int
) -> None:
    assert len(findings(program(tmp_path, MODEL.format(given=given)), "FSDP401")) == count


LOADER = """\
import os
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
torch.manual_seed(0)
if {test}:
    model = nn.Linear(8, 8)
    {sharded}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {loader}
    for (x,) in loader:
        model(x).sum().backward()
        optimizer.step()
dist.destroy_process_group()
"""
LOADED = "loader = DataLoader(TensorDataset(torch.ones(16, 8)), batch_size=4)"


def test_data_of_each_rank_where_one_setting_leads_to_all(tmp_path: Path) -> None:
    code = LOADER.format(
        test="os.environ.get('TRAIN')", sharded="fully_shard(model)", loader=LOADED
    )
    assert findings(program(tmp_path, code), "FSDP511")


def test_data_that_another_setting_chooses_may_be_right(tmp_path: Path) -> None:
    chosen = f"if os.environ.get('PLAIN'):\n        {LOADED}\n    else:\n        loader = make()"
    code = LOADER.format(test="True", sharded="fully_shard(model)", loader=chosen)
    assert not findings(program(tmp_path, code), "FSDP511")


META = """\
dist.init_process_group("gloo")
try:
    with torch.device("meta"):
        model = nn.Linear(8, 8)
    fully_shard(model)
    model(torch.ones(2, 8))
except {caught}:
    {handler}
"""


@pytest.mark.parametrize("handler, count", [("print('failed')\n    raise", 1), ("model = None", 0)])
def test_an_error_that_is_raised_again_is_not_handled(
    tmp_path: Path, handler: str, count: int
) -> None:
    code = META.format(caught="RuntimeError", handler=handler)
    assert len(findings(program(tmp_path, code), "FSDP116")) == count


@pytest.mark.parametrize("given", ["enabled=on", "**{'enabled': on}", "**options"])
def test_a_scaler_is_enabled_by_a_setting(tmp_path: Path, given: str) -> None:
    code = (
        "import os\non = os.environ['DTYPE'] == 'float16'\noptions = dict(enabled=on)\n"
        "dist.init_process_group('gloo')\nmodel = FSDP(nn.Linear(8, 8))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        f"scaler = torch.amp.GradScaler('cpu', {given})\n"
        "scaler.scale(model(torch.ones(2, 8)).sum()).backward()\nscaler.step(optimizer)\n"
    )
    found = findings(program(tmp_path, code), "FSDP407")
    assert [one.configuration for one in found] != [] and len(found) == 1


@pytest.mark.parametrize(
    "loop",
    [
        "for i in range(len(model)):\n    fully_shard(model[i])\n",
        "for i, _ in enumerate(model):\n    fully_shard(model[i])\n",
        "n = len(model)\nfor i in range(n):\n    model[i] = fully_shard(model[i])\n",
    ],
)
def test_a_loop_over_positions_visits_each_module(tmp_path: Path, loop: str) -> None:
    found = program(
        tmp_path,
        "dist.init_process_group('gloo')\n"
        "model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))\n"
        f"{loop}fully_shard(model)\nmodel(torch.ones(2, 8))\n",
    )
    trace = found.traces[0]
    assert len({one.module for one in trace.of(Sharded)}) == 4
    assert all(one.collective for one in events(found, Called))


@pytest.mark.parametrize(
    "test",
    [
        "def small(n, p):\n    return p.ndim < 2\n",
        "def small(n, p):\n    return n.endswith('.bias')\n",
        "def small(n, p):\n    short = len(p.shape) < 2\n    return short\n",
    ],
)
def test_parameters_are_filtered_by_a_function(tmp_path: Path, test: str) -> None:
    code = test + (
        "dist.init_process_group('gloo')\nmodel = FSDP(Net(), use_orig_params=True)\n"
        "decayed, others = [], []\n"
        "for n, p in model.named_parameters():\n"
        "    if small(n, p):\n        others.append(p)\n    else:\n        decayed.append(p)\n"
        "torch.optim.AdamW([{'params': decayed}, {'params': others, 'weight_decay': 0.0}])\n"
    )
    built = next(events(program(tmp_path, code), OptimizerBuilt))
    assert built.filtered_by

"""Tests of the rank in all their spellings: which ranks get to the code behind them."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Collective, Ranks, Saved, Sharded
from fsdplint.trace.queries.rank_matching import unmatched_events

ON_RANK_0 = {
    "get_rank": "if dist.get_rank() == 0:\n    dist.barrier()",
    "variable": "rank = dist.get_rank()\nif rank == 0:\n    dist.barrier()",
    "mirrored": "if 0 == dist.get_rank():\n    dist.barrier()",
    "not": "if not dist.get_rank():\n    dist.barrier()",
    "environment": "import os\nif int(os.environ['RANK']) == 0:\n    dist.barrier()",
    "set default": "import os\nrank = int(os.environ.setdefault('RANK', '0'))\n"
    "if rank == 0:\n    dist.barrier()",
    "getenv": "import os\nrank = int(os.environ.get('RANK', 0))\nif rank == 0:\n    dist.barrier()",
    "flag": "is_main = dist.get_rank() == 0\nif is_main:\n    dist.barrier()",
    "flag of not": "is_worker = dist.get_rank() != 0\nif not is_worker:\n    dist.barrier()",
    "function": "def is_main_process():\n    return dist.get_rank() == 0\nif is_main_process():\n    dist.barrier()",
    "function by branch": "def main_process():\n    if dist.get_rank() == 0:\n        return True\n    return False\n"
    "if main_process():\n    dist.barrier()",
    "guarded function": "def get_rank():\n    if not dist.is_available() or not dist.is_initialized():\n"
    "        return 0\n    return dist.get_rank()\nif get_rank() == 0:\n    dist.barrier()",
    "method": "class T:\n    def __init__(self):\n        self.rank = dist.get_rank()\n    def main(self):\n"
    "        return self.rank == 0\n    def save(self):\n        if self.main():\n            dist.barrier()\nT().save()",
    "property": "class T:\n    @property\n    def is_main(self):\n        return dist.get_rank() == 0\n"
    "    def save(self):\n        if self.is_main:\n            dist.barrier()\nT().save()",
    "early return": "def save():\n    if dist.get_rank() != 0:\n        return\n    dist.barrier()\nsave()",
    "early return in else": "def save():\n    if dist.get_rank() == 0:\n        pass\n    else:\n        return\n"
    "    dist.barrier()\nsave()",
    "continue": "for step in range(10):\n    if dist.get_rank() > 0:\n        continue\n    dist.barrier()",
    "and": "import sys\nif len(sys.argv) > 1 and dist.get_rank() == 0:\n    dist.barrier()",
    "and with step": "for step in range(10):\n    if step % 5 == 0 and dist.get_rank() == 0:\n        dist.barrier()",
    "membership": "local_rank = 0\nrank = dist.get_rank()\nif rank in [-1, 0]:\n    dist.barrier()",
    "less than one": "if dist.get_rank() < 1:\n    dist.barrier()",
    "at least one": "if dist.get_rank() >= 1:\n    pass\nelse:\n    dist.barrier()",
    "one at most, mirrored": "if not 1 <= dist.get_rank():\n    dist.barrier()",
    "argument": "import argparse\nargs = argparse.ArgumentParser().parse_args()\nif args.rank == 0:\n    dist.barrier()",
    "spawned": "import torch.multiprocessing as mp\ndef worker(gpu, n):\n    if gpu == 0:\n        dist.barrier()\n"
    "mp.spawn(worker, args=(2,), nprocs=2)",
    "accelerator": "from accelerate import Accelerator\na = Accelerator()\nif a.is_main_process:\n    dist.barrier()",
    "ternary": "dist.barrier() if dist.get_rank() == 0 else None",
    "exit": "import sys\nif dist.get_rank() != 0:\n    sys.exit(0)\ndist.barrier()",
    "global": "RANK = None\ndef setup():\n    global RANK\n    RANK = dist.get_rank()\nsetup()\nif RANK == 0:\n    dist.barrier()",
    "nested": "def save(main):\n    if main:\n        dist.barrier()\nsave(main=dist.get_rank() == 0)",
    "decorator": "import functools\ndef main_only(f):\n    @functools.wraps(f)\n    def inner(*args, **kwargs):\n"
    "        if dist.get_rank() == 0:\n            return f(*args, **kwargs)\n    return inner\n"
    "@main_only\ndef save(model):\n    dist.barrier()\nsave(model)",
    "decorated method": "def main_only(f):\n    def inner(self, *args):\n        if self.rank == 0:\n"
    "            return f(self, *args)\n    return inner\nclass T:\n    def __init__(self):\n"
    "        self.rank = dist.get_rank()\n    @main_only\n    def save(self):\n        dist.barrier()\nT().save()",
    "a default": "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    rank: int = 0\n"
    "config = Config()\nif config.rank == 0:\n    dist.barrier()",
    "what a test gives": "class T:\n    def __init__(self, rank):\n        self.rank = rank\n"
    "    def save(self):\n        if not self.rank:\n            dist.barrier()\nT(rank=0).save()",
    "what a test gives a function": "def train(rank, world_size):\n    if rank == 0:\n        dist.barrier()\n"
    "train(rank=0, world_size=1)",
    "match": "match dist.get_rank():\n    case 0:\n        dist.barrier()\n    case _:\n        pass",
    "while": "rank = dist.get_rank()\nwhile rank == 0:\n    dist.barrier()\n    break",
    "short circuit": "dist.get_rank() == 0 and dist.barrier()",
    "return for two reasons": "def save(step, every=10):\n    if step % every or dist.get_rank():\n        return\n"
    "    dist.barrier()\nfor step in range(20):\n    save(step)",
    "return for two reasons, the rank first": "def save(step):\n    if dist.get_rank() != 0 or step % 10 != 0:\n"
    "        return\n    dist.barrier()\nfor step in range(20):\n    save(step)",
    "continue for two reasons": "for step in range(20):\n    if step % 10 or dist.get_rank() > 0:\n        continue\n"
    "    dist.barrier()",
    "end for two reasons": "import sys\nfor step in range(20):\n    if step % 10 or dist.get_rank() > 0:\n"
    "        raise SystemExit(0)\n    dist.barrier()",
    "exit for two reasons": "import sys\nif len(sys.argv) > 2 or dist.get_rank() != 0:\n    sys.exit()\ndist.barrier()",
    "a setting and a return": "def save(args):\n    if not args.save or dist.get_rank() != 0:\n        return\n"
    "    dist.barrier()\nimport argparse\nsave(argparse.ArgumentParser().parse_args())",
    "the else of two reasons": "for step in range(20):\n    if step % 10 or dist.get_rank() > 0:\n        pass\n"
    "    else:\n        dist.barrier()",
}


@pytest.mark.parametrize("code", ON_RANK_0.values(), ids=ON_RANK_0)
def test_a_barrier_on_rank_0_alone_is_seen(tmp_path: Path, code: str) -> None:
    body = f"model = FSDP(Net())\n{code}\n"
    found = [e for e in events(program(tmp_path, body), Collective) if e.api == "barrier"]
    assert found
    assert {e.ranks for e in found} == {Ranks.ONE}


CLEAN = "def clean():\n    if dist.is_initialized():\n        dist.barrier()\n        dist.destroy_process_group()\n"


BEHIND_AN_EXIT = {
    "sys.exit": "import sys\nif dist.get_rank() == 0:\n    dist.barrier()\n    sys.exit()\ndist.barrier()",
    "SystemExit": "if dist.get_rank() == 0:\n    dist.barrier()\n    raise SystemExit(0)\ndist.barrier()",
    "a group that one side has left": "import sys\nif not dist.is_initialized():\n    dist.init_process_group()\n"
    + CLEAN
    + "if dist.get_rank() == 0:\n    clean()\n    sys.exit()\nclean()",
    "a group that both sides have left": CLEAN
    + "dist.init_process_group()\nif dist.get_rank() == 0:\n    clean()\nelse:\n    clean()\nclean()",
}


@pytest.mark.parametrize("code", BEHIND_AN_EXIT.values(), ids=BEHIND_AN_EXIT)
def test_each_side_comes_to_its_own_barrier(tmp_path: Path, code: str) -> None:
    body = f"model = FSDP(Net())\n{code}\n"
    for trace in program(tmp_path, body).traces:
        found = [e for e in trace.of(Collective) if e.api == "barrier"]
        assert [e.ranks for e in found] == [Ranks.ONE, Ranks.OTHERS]


ON_ALL_RANKS = {
    "plain": "dist.barrier()",
    "after a guard": "if dist.get_rank() == 0:\n    print('hello')\ndist.barrier()",
    "after a guarded function": "def log():\n    if dist.get_rank() != 0:\n        return\n    print('x')\nlog()\ndist.barrier()",
    "world size": "if dist.get_world_size() > 1:\n    dist.barrier()",
    "another flag": "import sys\nif sys.argv:\n    dist.barrier()",
    "after a loop with continue": "for i in range(3):\n    if dist.get_rank() != 0:\n        continue\n    print(i)\n"
    "dist.barrier()",
    "the rank of a matrix": "class Lora:\n    rank = 8\nlora = Lora()\nif lora.rank == 8:\n    dist.barrier()",
    "no ranks": "class T:\n    rank = -1\nif T().rank == -1:\n    dist.barrier()",
    "the rank that is meant": "def only_on(rank=0):\n    if dist.get_rank() == rank:\n        print()\n    dist.barrier()\nonly_on()",
    "no rank at all": "rank = -1\nif rank == -1:\n    dist.barrier()",
    "both": "if dist.get_rank() == 0 or True:\n    dist.barrier()",
    "after a function with two reasons to leave": "def log(step):\n    if step % 10 or dist.get_rank() != 0:\n"
    "        return\n    print('x')\nfor step in range(20):\n    log(step)\ndist.barrier()",
    "after a loop with two reasons to go on": "for step in range(20):\n    if step % 10 or dist.get_rank():\n"
    "        continue\n    print('x')\ndist.barrier()",
    "after two reasons": "for step in range(20):\n    if step % 10 == 0 or dist.get_rank() == 0:\n        print('x')\n"
    "    dist.barrier()",
    "one rank or the first": "if dist.get_world_size() == 1 or dist.get_rank() == 0:\n    print()\ndist.barrier()",
    "not distributed or the first": "import sys\nis_distributed = len(sys.argv) > 1\n"
    "if not is_distributed or dist.get_rank() == 0:\n    print()\ndist.barrier()",
    "two reasons without the rank": "def save(step, last):\n    if step % 10 or last:\n        return\n    dist.barrier()\n"
    "for step in range(20):\n    save(step, step == 19)",
    "a reason that fails": "for step in range(20):\n    if step < 0 or dist.get_rank() < 0:\n        raise ValueError(step)\n"
    "    dist.barrier()",
}


ON_BOTH_SIDES = {
    "a counterpart behind the return": "def save(step):\n    if step % 10 or dist.get_rank() != 0:\n        dist.barrier()\n"
    "        return\n    print('x')\n    dist.barrier()\nfor step in range(20):\n    save(step)",
    "a counterpart in the else": "for step in range(20):\n    if step % 10 or dist.get_rank() != 0:\n        dist.barrier()\n"
    "    else:\n        print('x')\n        dist.barrier()",
}


@pytest.mark.parametrize("code", ON_ALL_RANKS.values(), ids=ON_ALL_RANKS)
def test_a_barrier_on_all_ranks_is_not_partial(tmp_path: Path, code: str) -> None:
    body = f"model = FSDP(Net())\n{code}\n"
    found = [e for e in events(program(tmp_path, body), Collective) if e.api == "barrier"]
    assert found
    assert {e.ranks for e in found} == {Ranks.ALL}


@pytest.mark.parametrize("code", ON_BOTH_SIDES.values(), ids=ON_BOTH_SIDES)
def test_both_sides_of_two_reasons_match(tmp_path: Path, code: str) -> None:
    found = program(tmp_path, f"model = FSDP(Net())\n{code}\n")
    assert list(events(found, Collective))
    assert not [event for trace in found.traces for event in unmatched_events(trace)]


def test_the_other_ranks_are_known_too(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        if dist.get_rank() == 0:
            print("work")
        else:
            dist.barrier()
        """,
    )
    assert {e.ranks for e in events(found, Collective)} == {Ranks.OTHERS}


NO_RANK_TEST = {
    "rank of an adapter": "import config\nuse_lora = config.lora.rank > 0\nif use_lora:\n    dist.barrier()",
    "a check that fails": "import os\nvalue = os.environ.get('SOMETHING')\nrank = dist.get_rank()\n"
    "if rank != value:\n    raise ValueError('rank')\ndist.barrier()",
    "the same rank": "import os\nif dist.get_rank() == int(os.environ['RANK']):\n    dist.barrier()",
    "an error of rank 0": "if dist.get_rank() == 0:\n    raise ValueError('x')\ndist.barrier()",
}


@pytest.mark.parametrize("code", NO_RANK_TEST.values(), ids=NO_RANK_TEST)
def test_what_only_looks_like_a_rank_guard_is_none(tmp_path: Path, code: str) -> None:
    body = f"model = FSDP(Net())\n{code}\n"
    found = [e for e in events(program(tmp_path, body), Collective) if e.api == "barrier"]
    assert found
    assert {e.ranks for e in found} == {Ranks.ALL}


SEVERAL_RANKS = [
    "dist.get_world_size() > 1",
    "int(os.environ['WORLD_SIZE']) > 1",
    "int(os.environ.get('WORLD_SIZE', 1)) != 1",
    "'RANK' in os.environ",
    "not ('RANK' not in os.environ)",
    "os.environ.get('LOCAL_RANK') is not None",
    "int(os.environ.get('WORLD_SIZE', '1')) >= 2",
    "args.world_size > 1",
]


@pytest.mark.parametrize("test", SEVERAL_RANKS)
def test_a_program_runs_on_several_ranks(tmp_path: Path, test: str) -> None:
    found = program(
        tmp_path,
        f"""
        import argparse, os
        args = argparse.ArgumentParser().parse_args()
        model = Net()
        if {test}:
            fully_shard(model)
            rank = dist.get_rank()
        else:
            rank = 0
        if rank == 0:
            dist.barrier()
        """,
    )
    assert {e.guards for e in events(found, Sharded)} == {()}
    assert {e.ranks for e in events(found, Collective)} == {Ranks.ONE}


@pytest.mark.parametrize(
    "rank",
    [
        "os.environ.get('RANK') or dist.get_rank()",
        "os.environ.get('RANK') or 0",
        "dist.get_rank() if dist.is_initialized() else os.environ['RANK']",
        "os.environ['RANK'] if torch.cuda.is_available() else dist.get_rank()",
        "args.number or dist.get_rank()",
    ],
)
@pytest.mark.parametrize("path", ["f'rank{number}.pt'", "'rank%d.pt' % number"])
def test_one_rank_or_the_other_is_the_rank(tmp_path: Path, rank: str, path: str) -> None:
    found = program(
        tmp_path,
        f"""\
        import os
        from settings import args
        args = args()
        dist.init_process_group("gloo")
        number = int({rank})
        torch.save({{}}, {path})
        if number == 0:
            dist.barrier()
        """,
    )
    assert all(event.per_rank for event in events(found, Saved))
    barriers = [e for e in events(found, Collective) if e.api.endswith("barrier")]
    assert barriers and all(e.ranks is Ranks.ONE for e in barriers)


FAILING = {
    "a text": "raise SystemExit('too small')",
    "a formatted text": "raise SystemExit(f'{rank}: too small')",
    "a status": "sys.exit(1)",
    "a negative status": "sys.exit(-1)",
    "exit": "exit('too small')",
    "an error": "raise ValueError(rank)",
}


QUIET = {
    "no status": "sys.exit()",
    "success": "sys.exit(0)",
    "SystemExit": "raise SystemExit",
    "an unknown status": "sys.exit(status)",
}


@pytest.mark.parametrize("end", FAILING.values(), ids=FAILING)
def test_a_failing_check_of_the_rank_ends_all_ranks(tmp_path: Path, end: str) -> None:
    body = (
        f"import sys\nrank = dist.get_rank()\nif 8 // (rank + 1) <= 2:\n    {end}\ndist.barrier()"
    )
    assert {event.ranks for event in events(program(tmp_path, body), Collective)} == {Ranks.ALL}


@pytest.mark.parametrize("end", QUIET.values(), ids=QUIET)
def test_ranks_that_end_without_an_error(tmp_path: Path, end: str) -> None:
    body = (
        f"import sys\nrank = dist.get_rank()\nif 8 // (rank + 1) <= 2:\n    {end}\ndist.barrier()"
    )
    assert all(event.ranks.partial for event in events(program(tmp_path, body), Collective))


METHODS_OF_RANK = {
    "an imported object": "import lib\nwatch = lib.watch(__name__)\n",
    "an argument": "def make(watch):\n    return watch\nimport lib\nwatch = make(lib.watch())\n",
}


@pytest.mark.parametrize("made", METHODS_OF_RANK.values(), ids=METHODS_OF_RANK)
def test_a_method_with_the_name_of_a_test_of_the_rank(tmp_path: Path, made: str) -> None:
    body = f"{made}if watch.is_rank_zero():\n    dist.barrier()\nif watch.rank() == 1:\n    dist.barrier()"
    ranks = [event.ranks for event in events(program(tmp_path, body), Collective)]
    assert ranks == [Ranks.ONE, Ranks.ONE]


def test_the_rank_in_a_group_is_no_rank(tmp_path: Path) -> None:
    body = "import lib\nmesh = lib.mesh()\nif mesh.rank('dp') == 0:\n    dist.barrier()"
    (event,) = events(program(tmp_path, body), Collective)
    assert event.ranks is Ranks.ALL

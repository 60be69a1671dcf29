"""Configurations: conditions that are decided once for a whole run."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Collective, OptimizerStepped, Saved, Sharded, StateTaken, Wrapped


def test_a_condition_is_decided_the_same_way_along_a_trace(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        import argparse
        args = argparse.ArgumentParser().parse_args()
        model = Net()
        if args.fsdp:
            fully_shard(model)
        if not args.fsdp:
            state = model.state_dict()
        """,
    )
    for trace in found.traces:
        assert not (list(trace.of(Sharded)) and list(trace.of(StateTaken)))
    assert list(events(found, Sharded)) and list(events(found, StateTaken))


@pytest.mark.parametrize("info", ["configs", "{'step': 1, **configs}"])
def test_a_setting_is_the_same_in_a_copy_of_its_dict(tmp_path: Path, info: str) -> None:
    body = f"""
import argparse, yaml
args = argparse.ArgumentParser().parse_args()
configs = yaml.safe_load(open("c.yaml"))
configs["engine"] = args.engine
model = Net()
if args.engine == "fsdp":
    model = FSDP(model)
info = {info}
if info["engine"] != "fsdp":
    model.state_dict()
"""
    result = program(tmp_path, body)
    seen = [list(trace.of(Wrapped, StateTaken)) for trace in result.traces]
    assert [len(found) for found in seen] == [1, 1]


ABSENT = """
import json
opts = json.load(open("options.json"))
model = Net()
{first}
if {test}:
    fully_shard(model)
    state = model.state_dict()
"""


@pytest.mark.parametrize(
    ("first", "test", "possible"),
    [
        ('if "a" in opts:\n    del opts["a"]', 'opts.get("a")', False),
        ('if "a" in opts:\n    raise SystemExit', 'opts.get("a") == "x"', False),
        ("", 'opts.get("a") and "a" not in opts', False),
        ("", '"a" not in opts and opts.get("a")', False),
        ("", '"a" not in opts and opts.get("a") is None', True),
        ("", '"a" not in opts and not opts.get("a")', True),
        ("", '"a" not in opts and opts.get("a", True)', True),
        ("", '"a" in opts and not opts.get("a")', True),
        ("", '"a" not in opts and opts.get("b")', True),
        ('if "a" not in opts:\n    opts.update(json.load(open("b")))', 'opts.get("a")', True),
        ('if "a" not in opts:\n    opts.setdefault("a", 1)', 'opts.get("a")', True),
        ('import x\nif "a" not in opts:\n    x.fill(opts)', 'opts.get("a")', True),
    ],
)
def test_a_key_that_a_dict_does_not_have(
    first: str, test: str, possible: bool, tmp_path: Path
) -> None:
    found = program(tmp_path, ABSENT.format(first=first, test=test))
    assert bool(list(events(found, Sharded))) == possible


def test_values_of_one_choice_exclude_each_other(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        import argparse
        args = argparse.ArgumentParser().parse_args()
        model = Net()
        if args.mode == "fsdp1":
            model = FSDP(model)
        if args.mode == "fsdp2":
            fully_shard(model)
        """,
    )
    assert all(not (list(t.of(Wrapped)) and list(t.of(Sharded))) for t in found.traces)
    assert list(events(found, Wrapped)) and list(events(found, Sharded))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('args.mode in ["a", "b"]', 'args.mode in ("c", "d")'),
        ('args.mode in ["a", "b"]', 'args.mode == "c"'),
        ('args.mode in ["a", "b"]', 'args.mode not in ["a", "b", "c"]'),
        ('args.mode not in ["a", "b"]', 'args.mode == "a"'),
        ('args.mode == "a"', 'args.mode in {"b", "c"}'),
    ],
)
def test_lists_of_values_exclude_each_other(tmp_path: Path, one: str, other: str) -> None:
    found = program(
        tmp_path,
        f"""
        import argparse
        args = argparse.ArgumentParser().parse_args()
        model = Net()
        if {one}:
            model = FSDP(model)
        if {other}:
            fully_shard(model)
        """,
    )
    assert all(not (list(t.of(Wrapped)) and list(t.of(Sharded))) for t in found.traces)
    assert list(events(found, Wrapped)) and list(events(found, Sharded))


def test_every_branch_of_a_chain_is_seen(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        import argparse
        args = argparse.ArgumentParser().parse_args()
        model = Net()
        if args.mode == "none":
            pass
        elif args.mode == "two":
            fully_shard(model)
        elif args.mode == "one":
            model = FSDP(model)
        else:
            state = model.state_dict()
        """,
    )
    assert list(events(found, Wrapped)) and list(events(found, Sharded))
    assert list(events(found, StateTaken))


def test_code_behind_an_early_return_is_seen_in_its_configuration(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        def main(args):
            model = Net()
            if args.plain:
                state = model.state_dict()
                return
            fully_shard(model)

        import argparse
        main(argparse.ArgumentParser().parse_args())
        """,
    )
    (sharded,) = {str(g) for e in events(found, Sharded) for g in e.guards}
    assert sharded == "`args.plain` is false"
    assert list(events(found, StateTaken))


def test_constants_decide(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        USE_FSDP = False
        model = Net()
        if USE_FSDP:
            fully_shard(model)
        if __name__ == "__main__":
            state = model.state_dict()
        """,
    )
    assert not list(events(found, Sharded))
    assert list(events(found, StateTaken))


def test_a_dataclass_default_does_not_decide(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        from dataclasses import dataclass

        @dataclass
        class Config:
            use_fsdp: bool = False

        config = Config()
        model = Net()
        if config.use_fsdp:
            fully_shard(model)
        """,
    )
    assert list(events(found, Sharded))


@pytest.mark.parametrize(
    ("before", "has"), [("", False), ("fully_shard(model)", True), ("model = FSDP(model)", False)]
)
def test_what_fully_shard_adds_to_a_module(tmp_path: Path, before: str, has: bool) -> None:
    found = program(
        tmp_path,
        f"""
        model = Net()
        {before}
        switch = getattr(model, "set_requires_gradient_sync", None)
        if hasattr(model, "unshard") and switch is not None:
            switch(False)
            torch.save(model, "has.pt")
        """,
    )
    assert len(found.traces) == 1
    assert bool(list(events(found, Saved))) is has


def test_the_size_of_a_module_differs_between_modules(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        def shard(module, limit):
            numel = sum(p.numel() for p in module.parameters())
            if numel < limit:
                return 0
            taken = sum(shard(child, limit) for child in module.children())
            if module is model or numel - taken < limit:
                return taken
            fully_shard(module)
            return numel

        model = Net()
        shard(model, 100)
        fully_shard(model)
        """,
    )
    assert len(found.traces) == 1
    names = {found.traces[0].modules[e.module].class_name for e in events(found, Sharded)}
    assert {"Block", "Net"} <= names


def test_a_library_may_not_be_installed(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        from torch import nn

        try:
            from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as Wrapper
        except ImportError:
            from torch.distributed.fsdp import FullyShardedDataParallel as Wrapper

        model = Wrapper(nn.Linear(8, 8))
        """,
        header="",
    )
    assert len(list(events(found, Wrapped))) == 1
    assert any(not list(trace.of(Wrapped)) for trace in found.traces)


def test_a_number_that_is_not_zero_is_a_configuration_too(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        def main(zero):
            model = Net()
            if zero == 0:
                print("plain")
            if zero:
                fully_shard(model)

        import sys
        main(sys.argv[1])
        """,
    )
    assert list(events(found, Sharded))


def test_branches_that_speak_of_fsdp_are_looked_at_first(tmp_path: Path) -> None:
    others = [f"if args.f{n:02}:\n    state{n} = model.state_dict()" for n in range(40)]
    found = program(
        tmp_path,
        "import argparse\nargs = argparse.ArgumentParser().parse_args()\nmodel = Net()\n"
        + "\n".join(others)
        + "\nif args.z1:\n    pass\nelif args.z2:\n    model = FSDP(model)\n",
    )
    assert list(events(found, Wrapped))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("world > 1", "world <= 1"),
        ("world > 1", "world == 1"),
        ("world >= 2", "world < 2"),
        ("world == 4", "world < 3"),
        ("world != 1", "world == 1"),
        ("world", "world == 0"),
    ],
)
def test_comparisons_with_numbers_agree_with_each_other(
    tmp_path: Path, one: str, other: str
) -> None:
    found = program(
        tmp_path,
        f"""
        import sys
        world = int(sys.argv[1])
        model = Net()
        if {one}:
            fully_shard(model)
        if {other}:
            state = model.state_dict()
        """,
    )
    for trace in found.traces:
        assert not (list(trace.of(Sharded)) and list(trace.of(StateTaken)))
    assert list(events(found, Sharded)) and list(events(found, StateTaken))


def test_a_failing_check_is_no_configuration(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        import sys
        if sys.argv[1] == "bad":
            raise ValueError("bad")
        model = Net()
        fully_shard(model)
        """,
    )
    assert {e.guards for e in events(found, Sharded)} == {()}


def test_a_constant_of_one_side_of_a_branch_that_varies_is_not_known_after_it(
    tmp_path: Path,
) -> None:
    body = """
        model = Net()
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in batches:
            model(batch).sum().backward()
            bad = False
            for parameter in model.parameters():
                if not torch.isfinite(parameter.grad).all():
                    bad = True
                    break
            if bad:
                continue
            optimizer.step()
    """
    assert list(events(program(tmp_path, body), OptimizerStepped))


def test_an_option_agrees_with_its_normal_form(tmp_path: Path) -> None:
    body = """
        class Trainer:
            def __init__(self, strategy):
                self.strategy = strategy.strip().lower()
                if self.strategy == "fsdp":
                    fully_shard(model)
                if strategy == "ddp":
                    dist.barrier()

        model = Net()
        args = parse()
        Trainer(args.strategy)
    """
    traces = [t for t in program(tmp_path, body).traces if t.entry]
    assert any(list(t.of(Sharded)) for t in traces)
    assert not any(list(t.of(Sharded)) and list(t.of(Collective)) for t in traces)


@pytest.mark.parametrize("save", ["state if state is not None else model.state_dict()",
                                  "model.state_dict() if state is None else state"])  # fmt: skip
def test_a_state_dict_is_not_none(tmp_path: Path, save: str) -> None:
    body = f"""\
import sys
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = torch.nn.Linear(4, 4)
if "fsdp" in sys.argv:
    model = FSDP(model)
state = None
if isinstance(model, FSDP):
    state = model.state_dict()
if dist.get_rank() == 0:
    torch.save({save}, "model.pt")
"""
    taken = events(program(tmp_path, body), StateTaken)
    assert not any(event.ranks.partial and event.collective for event in taken)


def test_an_entry_of_a_state_dict_may_be_none(tmp_path: Path) -> None:
    body = """\
model = torch.nn.Linear(4, 4)
saved = torch.load("model.pt").get("optimizer")
if saved is None:
    dist.barrier()
"""
    assert events(program(tmp_path, body), Collective)


def test_a_member_of_two_values_with_one_name(tmp_path: Path) -> None:
    body = """\
import datasets

def is_ready(dataset):
    return "ids" in dataset.column_names

def prepare(name):
    data = datasets.load_dataset(name)
    if is_ready(data):
        return data
    made = data.map(str)
    assert is_ready(made)
    return made

prepare("text")
dist.barrier()
"""
    found = program(tmp_path, body)
    assert all(any(True for _ in trace.of(Collective)) for trace in found.traces)


def test_an_empty_list_in_a_variable_is_false(tmp_path: Path) -> None:
    body = """
        names = []
        none = not names
        some = not {"a": 1}
        if none:
            fully_shard(nn.Linear(2, 2))
        if some:
            fully_shard(nn.Linear(2, 2))
    """
    found = program(tmp_path, body)
    assert [len(list(trace.of(Sharded))) for trace in found.traces] == [1]


@pytest.mark.parametrize(
    ("flag", "wrapped"),
    [
        ("last and not last and isinstance(model, DDP)", 0),
        ("not last and isinstance(model, DDP)", 0),
        ("not (last or isinstance(model, torch.nn.Module))", 0),
        ("not last and isinstance(model, torch.nn.Module)", 1),
        ("last or isinstance(model, DDP)", 1),
    ],
)
def test_an_operand_may_decide_behind_one_that_is_not_known(
    flag: str, wrapped: int, tmp_path: Path
) -> None:
    body = f"""
from torch.nn.parallel import DistributedDataParallel as DDP
model = Net()
for step in range(4):
    last = step % 2 == 1
    flag = {flag}
    if flag:
        fully_shard(model)
"""
    assert bool(list(events(program(tmp_path, body), Sharded))) == wrapped

"""States of the module inside of FSDP1's wrapper, in blocks that set their type."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

from fsdplint.engine.fix import fix
from fsdplint.engine.migrator import migration_rules
from fsdplint.engine.workspace import Workspace

FORMS = {
    "a state that is saved": (
        """
        def save(model, path):
            policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
                weights = model.module.state_dict()
            if dist.get_rank() == 0:
                torch.save(weights, path)


        model = FSDP(Net())
        save(model, "net.pt")
        """,
        """
        def save(model, path):
            policy = StateDictOptions(full_state_dict=True, cpu_offload=True)
            weights = get_model_state_dict(model, options=policy)
            if dist.get_rank() == 0:
                torch.save(weights, path)


        model = fully_shard(Net())
        save(model, "net.pt")
        """,
    ),
    "a state that is loaded": (
        """
        class Trainer:
            def __init__(self):
                self.net = FSDP(Net(), use_orig_params=True)

            def load(self, path):
                with FSDP.state_dict_type(self.net, StateDictType.FULL_STATE_DICT):
                    self.net.module.load_state_dict(torch.load(path))


        Trainer().load("net.pt")
        """,
        """
        class Trainer:
            def __init__(self):
                self.net = fully_shard(Net())

            def load(self, path):
                set_model_state_dict(
                    self.net, torch.load(path), options=StateDictOptions(full_state_dict=True)
                )


        Trainer().load("net.pt")
        """,
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_block_says_which_state_is_meant(name: str, tmp_path: Path) -> None:
    before, after = map(textwrap.dedent, FORMS[name])
    assert migrated(tmp_path, before).strip() == after.strip()
    path = tmp_path / "train.py"
    result = fix(Workspace([path]), [rule() for rule in migration_rules()])
    assert path in result.texts, [one.help for one in result.remaining]


def test_change_is_noted(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, FORMS["a state that is saved"][0])
    assert any("the module inside of the wrapper" in note.text for note in found.notes)


def test_sharded_state_of_the_inner_module_is_a_decision(tmp_path: Path) -> None:
    """Its files have flat parts that the program may read by their names."""
    body = """
    model = FSDP(Net())
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        torch.save(model.module.state_dict(), f"net_{dist.get_rank()}.pt")
    """
    found, _ = plan(tmp_path, body)
    assert "FSDP207-inner-state" in [one.blocker.code for one in found.blockers]


UNTYPED = {
    "on all ranks": (
        """
        model = FSDP(Net())
        weights = model.module.state_dict()
        if dist.get_rank() == 0:
            torch.save(weights, "net.pt")
        """,
        """
        model = fully_shard(Net())
        weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        if dist.get_rank() == 0:
            torch.save(weights, "net.pt")
        """,
    ),
    "on rank 0, which writes a log first": (
        """
        model = FSDP(Net())
        if dist.get_rank() == 0:
            try:
                print(1 / 0)
            except ZeroDivisionError:
                print("no number")
            torch.save(model.module.state_dict(), "net.pt")
            print("saved")
        """,
        """
        model = fully_shard(Net())
        model_state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if dist.get_rank() == 0:
            try:
                print(1 / 0)
            except ZeroDivisionError:
                print("no number")
            torch.save(model_state, "net.pt")
            print("saved")
        """,
    ),
    "on rank 0, in some epochs": (
        """
        def save(model, rank, epoch):
            if rank == 0 and epoch % 2 == 0:
                torch.save({"model": model.module.state_dict()}, "net.pt")


        model = FSDP(Net())
        for epoch in range(4):
            save(model, dist.get_rank(), epoch)
        """,
        """
        def save(model, rank, epoch):
            if epoch % 2 == 0:
                model_state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
            if rank == 0 and epoch % 2 == 0:
                torch.save({"model": model_state}, "net.pt")


        model = fully_shard(Net())
        for epoch in range(4):
            save(model, dist.get_rank(), epoch)
        """,
    ),
}


@pytest.mark.parametrize("name", UNTYPED)
def test_a_state_without_a_type_is_taken_whole(name: str, tmp_path: Path) -> None:
    before, after = map(textwrap.dedent, UNTYPED[name])
    found, text = plan(tmp_path, before)
    assert not found.blockers, [one.reason for one in found.blockers]
    assert text.endswith(after.lstrip()), text
    assert [note.unsafe for note in found.notes if "inside of the wrapper" in note.text] == [True]


LOADED = {
    "by the wrapper": (
        """
        model = FSDP(Net())
        print(model.module.load_state_dict(torch.load("net.pt"), strict=False))
        """,
        """
        model = fully_shard(Net())
        print(
            set_model_state_dict(
                model,
                torch.load("net.pt"),
                options=StateDictOptions(full_state_dict=True, strict=False),
            )
        )
        """,
    ),
    "by a variable of the module": (
        """
        def load(net, optimizer, path):
            saved = torch.load(path)
            net.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])


        def save(net, optimizer, path):
            saved = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
            if dist.get_rank() == 0:
                torch.save(saved, path)


        model = FSDP(Net())
        without = model.module
        optimizer = torch.optim.AdamW(model.parameters())
        load(without, optimizer, "old.pt")
        save(without, optimizer, "new.pt")
        """,
        """
        def load(net, optimizer, path):
            saved = torch.load(path)
            set_model_state_dict(
                net, saved["model"], options=StateDictOptions(full_state_dict=True)
            )
            set_optimizer_state_dict(
                net, optimizer, saved["optimizer"], options=StateDictOptions(full_state_dict=True)
            )


        def save(net, optimizer, path):
            saved = {
                "model": get_model_state_dict(
                    net, options=StateDictOptions(full_state_dict=True)
                ),
                "optimizer": get_optimizer_state_dict(
                    net,
                    optimizer,
                    options=StateDictOptions(full_state_dict=True, cpu_offload=True),
                ),
            }
            if dist.get_rank() == 0:
                torch.save(saved, path)


        model = fully_shard(Net())
        without = model
        optimizer = torch.optim.AdamW(model.parameters())
        load(without, optimizer, "old.pt")
        save(without, optimizer, "new.pt")
        """,
    ),
}


@pytest.mark.parametrize("name", LOADED)
def test_a_state_without_a_type_is_loaded_whole(name: str, tmp_path: Path) -> None:
    before, after = map(textwrap.dedent, LOADED[name])
    found, text = plan(tmp_path, before)
    assert not found.blockers, [one.reason for one in found.blockers]
    start = text.index("dist.init_process_group")
    assert same_code(text[start:].partition("\n")[2], after), text
    assert [note.unsafe for note in found.notes if "is taken for the whole" in note.text] == [True]
    path = tmp_path / "train.py"
    result = fix(Workspace([path], unsafe=True), [rule() for rule in migration_rules()])
    assert path in result.texts, [one.help for one in result.remaining]


def same_code(one: str, other: str) -> bool:
    return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))


NOT_TAKEN = {
    "after a step on rank 0": """
        model = FSDP(Net())
        optimizer = torch.optim.SGD(model.parameters())
        if dist.get_rank() == 0:
            optimizer.step()
            torch.save(model.module.state_dict(), "net.pt")
        """,
    "in the other branch of a test": """
        model = FSDP(Net())
        if dist.get_rank() != 0:
            print("nothing")
        else:
            torch.save(model.module.state_dict(), "net.pt")
        """,
    "loaded on some ranks": """
        model = FSDP(Net())
        if dist.get_rank() == 0:
            model.module.load_state_dict(torch.load("net.pt"))
        """,
    "loaded in place of the parameters": """
        model = FSDP(Net())
        model.module.load_state_dict(torch.load("net.pt"), assign=True)
        """,
}


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_a_state_that_not_all_ranks_can_take_blocks(name: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, textwrap.dedent(NOT_TAKEN[name]))
    assert "FSDP207-inner-state" in [one.blocker.code for one in found.blockers]

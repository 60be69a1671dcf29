"""Optimizer states that are converted in one of several branches, and loaded after them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

SETUP = """
model = FSDP(Net(), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
saved = torch.load("state.pt", map_location="cpu")
"""
CONVERTED = """set_optimizer_state_dict(
        model, optimizer, saved["optim"], options=StateDictOptions(full_state_dict=True)
    )"""
FORMS = {
    "a choice in a choice": (
        """
        loadable = saved["optim"]
        if os.environ.get("SHARDED"):
            try:
                loadable = FSDP.optim_state_dict_to_load(model, optimizer, loadable)
            except Exception as error:
                print(error)
                loadable = saved["optim"]
        optimizer.load_state_dict(loadable)
        """,
        """
        loadable = saved["optim"]
        if os.environ.get("SHARDED"):
            try:
                set_optimizer_state_dict(
                    model, optimizer, loadable, options=StateDictOptions(full_state_dict=True)
                )
                loadable = None  # it is loaded already
            except Exception as error:
                print(error)
                loadable = saved["optim"]
        if loadable is not None:
            optimizer.load_state_dict(loadable)
        """,
    ),
    "a handler that takes the state as it is": (
        """
        try:
            loadable = FSDP.optim_state_dict_to_load(model, optimizer, saved["optim"])
        except Exception as error:
            print(f"not converted: {error}")
            loadable = saved["optim"]
        optimizer.load_state_dict(loadable)
        print("resumed")
        """,
        """
        try:
            CONVERTED
        except Exception as error:
            print(f"not converted: {error}")
            optimizer.load_state_dict(saved["optim"])
        print("resumed")
        """,
    ),
    "a handler that leaves": (
        """
        try:
            loadable = FSDP.optim_state_dict_to_load(model, optimizer, saved["optim"])
        except KeyError:
            raise SystemExit("no state of the optimizer")
        optimizer.load_state_dict(loadable)
        """,
        """
        try:
            CONVERTED
        except KeyError:
            raise SystemExit("no state of the optimizer")
        """,
    ),
    "another state in the other branch": (
        """
        if isinstance(model, FSDP):
            loadable = FSDP.optim_state_dict_to_load(model, optimizer, saved["optim"])
        else:
            loadable = saved["optim"]
        optimizer.load_state_dict(loadable)
        """,
        """
        if isinstance(model, FSDPModule):
            CONVERTED
        else:
            optimizer.load_state_dict(saved["optim"])
        """,
    ),
    "a variable that is set before": (
        """
        loadable = saved["optim"]
        if saved["version"] > 1:
            print("converting")
            loadable = FSDP.optim_state_dict_to_load(model, optimizer, saved["optim"])
        elif saved["version"] > 0:
            print("loading")
        optimizer.load_state_dict(loadable)
        """,
        """
        loadable = saved["optim"]
        if saved["version"] > 1:
            print("converting")
            CONVERTED
        elif saved["version"] > 0:
            print("loading")
            optimizer.load_state_dict(loadable)
        else:
            optimizer.load_state_dict(loadable)
        """,
    ),
    "two branches that convert": (
        """
        if "optim" in saved:
            loadable = FSDP.optim_state_dict_to_load(model, optimizer, saved["optim"])
        else:
            loadable = FSDP.optim_state_dict_to_load(model, optimizer, saved["optim"])
        optimizer.load_state_dict(loadable)
        """,
        """
        if "optim" in saved:
            CONVERTED
        else:
            CONVERTED
        """,
    ),
    "a branch with a `state_dict_type` block": (
        """
        if saved["version"] == 1:
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                loadable = FSDP.optim_state_dict_to_load(model, optimizer, saved["optim"])
        else:
            loadable = saved["plain"]
        optimizer.load_state_dict(loadable)
        """,
        """
        if saved["version"] == 1:
            CONVERTED
        else:
            optimizer.load_state_dict(saved["plain"])
        """,
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_load_moves_into_branches(name: str, tmp_path: Path) -> None:
    before, after = map(textwrap.dedent, FORMS[name])
    text = migrated(tmp_path, SETUP + before)
    assert text.endswith(after.replace("CONVERTED", CONVERTED).lstrip()), text


def test_state_that_other_code_reads_stays(tmp_path: Path) -> None:
    """The converted state has no counterpart, so code that reads it is a decision."""
    body = """
    try:
        loadable = FSDP.optim_state_dict_to_load(model, optimizer, saved["optim"])
    except KeyError:
        loadable = saved["optim"]
    optimizer.load_state_dict(loadable)
    print(loadable["param_groups"])
    """
    found, _ = plan(tmp_path, SETUP + textwrap.dedent(body))
    assert [one.blocker.code for one in found.blockers] == ["FSDP203-optimizer-state-unseen"]


@pytest.mark.parametrize(
    ("handler", "unsafe"),
    [
        ("raise SystemExit('no state')", False),
        ("loadable = saved['optim']", False),
        ("return", True),
        ("print('no state')\n            return", True),
    ],
)
def test_a_handler_that_hides_errors_of_the_load_is_unsafe(
    tmp_path: Path, handler: str, unsafe: bool
) -> None:
    body = f"""
    def resume(model, optimizer, saved):
        try:
            loadable = FSDP.optim_state_dict_to_load(model, optimizer, saved["optim"])
        except KeyError:
            {handler}
        optimizer.load_state_dict(loadable)

    """
    found, _ = plan(tmp_path, textwrap.dedent(body) + SETUP + "resume(model, optimizer, saved)\n")
    (note,) = [note for note in found.notes if "is handled" in note.text]
    assert note.unsafe is unsafe


def test_a_load_that_ddp_shares_stays_lenient(tmp_path: Path) -> None:
    body = """
    model = Net()
    if os.environ.get("SHARD"):
        model = FSDP(model)
    else:
        model = nn.parallel.DistributedDataParallel(model)
    lenient = bool(os.environ.get("LENIENT"))
    model.load_state_dict(torch.load("model.pt"), strict=not lenient)
    """
    assert "StateDictOptions(full_state_dict=True, strict=not lenient)" in migrated(tmp_path, body)


DELETED = """
loadable = saved["optim"]
if os.environ.get("SHARDED"):
    loadable = FSDP.optim_state_dict_to_load(model, optimizer, loadable)
optimizer.load_state_dict(loadable)
del saved["optim"]
del loadable
"""


def test_a_state_is_deleted_after_the_load(tmp_path: Path) -> None:
    text = migrated(tmp_path, SETUP + DELETED)
    assert "set_optimizer_state_dict(" in text and "optim_state_dict_to_load" not in text
    assert "else:\n    optimizer.load_state_dict(loadable)\ndel saved" in text


def test_a_variable_that_only_the_branches_assign_is_not_deleted(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, SETUP + DELETED.replace('loadable = saved["optim"]\n', ""))
    assert any("how this optimizer state is used" in one.reason for one in found.blockers)

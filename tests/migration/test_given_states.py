"""States that a program reads after it has loaded them."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan

LOADED = {
    "read later": (
        "state = torch.load('a.pt')\nmodel.load_state_dict(state)\nprint(len(state))\n",
        True,
    ),
    "an item that is read later": (
        "state = torch.load('a.pt')\nmodel.load_state_dict(state['m'])\nother = state['m']\n",
        True,
    ),
    "loaded in a loop": (
        "state = torch.load('a.pt')\nfor _ in range(3):\n    model.load_state_dict(state)\n",
        True,
    ),
    "a parameter whose argument is read later": (
        "def restore(state, model=model):\n    model.load_state_dict(state)\n\n\n"
        "best = torch.load('a.pt')\nrestore(best)\nprint(len(best))\n",
        True,
    ),
    "a parameter whose argument is a call": (
        "def restore(state, model=model):\n    model.load_state_dict(state)\n\n\n"
        "restore(torch.load('a.pt'))\n",
        False,
    ),
    "an attribute that is read elsewhere": (
        "class Best:\n    state = None\n\n\nbest = Best()\nbest.state = torch.load('a.pt')\n"
        "model.load_state_dict(best.state)\nprint(best.state)\n",
        True,
    ),
    "deleted later": (
        "state = torch.load('a.pt')\nmodel.load_state_dict(state)\ndel state\n",
        False,
    ),
    "another item": (
        "state = torch.load('a.pt')\nmodel.load_state_dict(state['m'])\nstep = state['step']\n",
        False,
    ),
    "made in a loop": (
        "for path in ('a.pt', 'b.pt'):\n    state = torch.load(path)\n    model.load_state_dict(state)\n",
        False,
    ),
}


@pytest.mark.parametrize(("body", "copied"), list(LOADED.values()), ids=list(LOADED))
def test_the_setter_gets_a_copy(body: str, copied: bool, tmp_path: Path) -> None:
    text = migrated(tmp_path, "model = FSDP(Net())\n" + body)
    assert (" dict(" in text) is copied


@pytest.mark.parametrize(
    ("load", "noted"),
    [
        ("model.load_state_dict(state)", False),
        ("missing = model.load_state_dict(state, strict=False)", True),
        ("model.load_state_dict(state, strict=True)", True),
    ],
)
def test_missing_keys_are_noted(load: str, noted: bool, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, f"model = FSDP(Net())\nstate = torch.load('a.pt')\n{load}\n")
    assert (
        "keys that a full state lacks are not reported" in [x.text for x in found.notes]
    ) is noted

"""Data on the device of a rank: it is the same data, not data that the rank selects."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import PickedByRank, Saved

DATA = """\
from elsewhere import read, settings
dist.init_process_group("gloo")
rank = dist.get_rank()
table, data = read("table"), read("data")
"""


def picks(folder: Path, code: str) -> bool:
    """Whether the program selects something by the rank."""
    return any(True for _ in events(program(folder, DATA + code), PickedByRank))


MOVED = {
    "to": "data.to(rank)",
    "cuda": "data.cuda(rank)",
    "text": "data.to(f'cuda:{rank}')",
    "device": "data.to(torch.device('cuda', rank), non_blocking=True)",
    "keyword": "data.to(device=rank)",
    "element": "data[0].to(rank)",
    "contiguous": "data.contiguous().to(rank).long()",
}


@pytest.mark.parametrize("moved", MOVED.values(), ids=MOVED)
def test_moved_data_selects_nothing_by_rank(tmp_path: Path, moved: str) -> None:
    assert not picks(tmp_path, f"print(table[{moved}])\n")


@pytest.mark.parametrize("moved", MOVED.values(), ids=MOVED)
def test_moved_batches_select_nothing_by_rank(tmp_path: Path, moved: str) -> None:
    code = "for (data,) in torch.utils.data.DataLoader(read('samples')):\n"
    assert not picks(tmp_path, code + f"    print(table[{moved}])\n")


@pytest.mark.parametrize(
    "code",
    [
        "table[rank]",
        "table[rank::2]",
        "table[data.to(rank) + rank]",
        "table[data[rank].to(rank)]",
        "table[torch.arange(rank, 8, 2).to(rank)]",
        "table[read(rank)]",
    ],
)
def test_data_of_a_rank_is_selected_by_it(tmp_path: Path, code: str) -> None:
    assert picks(tmp_path, f"print({code})\n")


@pytest.mark.parametrize(
    ("settings", "may_differ"),
    [
        ("import types\nconfig = types.SimpleNamespace(**settings())", False),
        ("from types import SimpleNamespace\nconfig = SimpleNamespace(**settings(1), a=2)", False),
        ("import types\nconfig = types.SimpleNamespace(out=f'{rank}')", True),
        ("import types\nconfig = types.SimpleNamespace(**settings(rank))", True),
    ],
)
def test_a_path_in_settings_is_the_same_on_all_ranks(
    tmp_path: Path, settings: str, may_differ: bool
) -> None:
    code = f"{settings}\nimport os\ntorch.save(table, os.path.join(config.out, 'model.pt'))\n"
    found = list(events(program(tmp_path, DATA + code), Saved))
    assert {event.per_rank for event in found if isinstance(event, Saved)} == {may_differ}


@pytest.mark.parametrize("call", ["logger.info", "log", "log_dist", "print_rank"])
def test_a_report_selects_nothing_by_rank(tmp_path: Path, call: str) -> None:
    code = "from elsewhere import logger, log, log_dist, print_rank\n"
    code += f"for (data,) in torch.utils.data.DataLoader(read('samples')):\n    {call}('%d', rank, data)\n"
    assert not picks(tmp_path, code)
    assert picks(tmp_path, code.replace(f"{call}(", "select("))

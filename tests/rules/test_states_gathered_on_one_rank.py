"""FSDP303 where the program adds tensors to a dict on one rank, and all ranks write the dict."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

SAVING = """
dist.init_process_group("gloo")
rank = dist.get_rank()
model = fully_shard(nn.Linear(8, 8))


def gather(model):
    state = {{}}
    for name, tensor in {source}:
        whole = tensor.full_tensor()
        {test}
            state[name] = whole.cpu()
    return state


state = gather(model)
{save}
"""
STATE, PARAMETERS = "model.state_dict().items()", "model.named_parameters()"


def is_found(folder: Path, source: str, test: str, save: str) -> bool:
    code = SAVING.format(source=source, test=test, save=save)
    return bool(findings(program(folder, code), "FSDP303"))


@pytest.mark.parametrize("source", [STATE, PARAMETERS])
@pytest.mark.parametrize(
    "test", ["if rank == 0:", "if not rank:", "if rank > 0:\n            pass\n        else:"]
)
@pytest.mark.parametrize(
    "save", ["torch.save(state, 'm.pt')", "torch.save({'model': state, 'step': 1}, 'm.pt')"]
)
def test_all_ranks_write_what_one_has(tmp_path: Path, source: str, test: str, save: str) -> None:
    assert is_found(tmp_path, source, test, save)


@pytest.mark.parametrize(
    "save",
    [
        "if rank == 0:\n    torch.save(state, 'm.pt')",
        "if state:\n    torch.save(state, 'm.pt')",
        "if len(state) > 0:\n    torch.save(state, 'm.pt')",
        "torch.save(state, f'm{rank}.pt')",
        "held = [state]\ndist.broadcast_object_list(held)\ntorch.save(held[0], 'm.pt')",
        "state = complete(state)\ntorch.save(state, 'm.pt')",
    ],
)
def test_one_rank_writes_or_all_have_it(tmp_path: Path, save: str) -> None:
    assert not is_found(tmp_path, STATE, "if rank == 0:", save)


def test_all_ranks_add_the_tensors(tmp_path: Path) -> None:
    assert not is_found(tmp_path, STATE, "if True:", "torch.save(state, 'm.pt')")

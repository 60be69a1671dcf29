"""The right fix of an optimizer or of a saved state is proven however the model is called and saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fsdplint.cli.prove import prove_command, run_command

HEAD = """\
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        return self.layers(x)

    def loss(self, x):
        return self.layers(x).square().mean()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
"""
OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)\n"
SHARDED = """\
fully_shard(model.layers[0])
fully_shard(model.layers[2])
fully_shard(model)
"""
LOOP = """\
for step in range(2):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(2 * step + dist.get_rank()))
    loss = {loss}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
END = "dist.destroy_process_group()\n"
LOSSES = {
    "call": "model(x).square().mean()",
    "forward": "model.forward(x).square().mean()",
    "method": "model.loss(x)",
}
# Of the state that rank 0 writes; all of them are collectives that no rank may leave out.
SAVES = {
    "model": 'torch.save(model.state_dict(), "model.pt")',
    "in-a-dict": 'torch.save({"model": model.state_dict(), "step": 2}, "model.pt")',
    "variable": 'state = model.state_dict()\\ntorch.save(state, "model.pt")',
}


def proof_of(program: str, folder: Path, *args: str) -> dict[str, Any]:
    (folder / "train.py").write_text(program)
    (folder / "pyproject.toml").touch()
    out = folder / "proof.json"
    result = CliRunner().invoke(
        prove_command, [str(folder / "train.py"), "--json", str(out), *args]
    )
    assert out.exists(), result.output
    proof: dict[str, Any] = json.loads(out.read_text())
    return proof


def verdicts(proof: dict[str, Any]) -> dict[str, tuple[str, list[str]]]:
    return {fix["code"]: (fix["verdict"], fix["reasons"]) for fix in proof["fixes"]}


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("form", LOSSES)
def test_an_optimizer_that_is_built_later_is_proven(form: str, tmp_path: Path) -> None:
    program = HEAD + OPTIMIZER + SHARDED + LOOP.format(loss=LOSSES[form]) + END
    found = verdicts(proof_of(program, tmp_path, "--steps", "2"))
    assert found["FSDP103"][0] == "proven", found


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(("save", "form"), list(zip(SAVES, LOSSES, strict=True)))
def test_a_state_that_is_gathered_is_proven(save: str, form: str, tmp_path: Path) -> None:
    saving = SAVES[save].replace("\\n", "\n")
    lines = [f"    {line}\n" for line in saving.splitlines()]
    program = HEAD + SHARDED + OPTIMIZER + LOOP.format(loss=LOSSES[form])
    program += "if dist.get_rank() == 0:\n" + "".join(lines) + END
    proof = proof_of(program, tmp_path, "--unsafe-fixes")
    found = verdicts(proof)
    assert found["FSDP301"][0] == "proven", found
    checks = {check["name"]: check for check in proof["checks"]}
    assert checks["checkpoint model.pt"]["holds"] is True


@pytest.mark.usefixtures("forked")
def test_a_state_that_stays_sharded_spoils_no_other_verdict(tmp_path: Path) -> None:
    """The fix of the state is unsafe, and is not applied: both programs write parts."""
    program = HEAD + OPTIMIZER + SHARDED + LOOP.format(loss=LOSSES["call"])
    program += 'if dist.get_rank() == 0:\n    torch.save(model.state_dict(), "model.pt")\n' + END
    found = verdicts(proof_of(program, tmp_path))
    assert {code: verdict for code, (verdict, _) in found.items()} == {"FSDP103": "proven"}


@pytest.mark.usefixtures("forked")
def test_times_of_cpu_ranks_are_not_told(tmp_path: Path) -> None:
    program = HEAD + OPTIMIZER + SHARDED + LOOP.format(loss=LOSSES["call"]) + END
    names = [check["name"] for check in proof_of(program, tmp_path)["checks"]]
    assert "step time" not in names and "bytes of collectives a step" in names


@pytest.mark.usefixtures("forked")
def test_files_outside_of_the_copies_are_named(tmp_path: Path) -> None:
    project, real = tmp_path / "project", tmp_path / "real"
    project.mkdir()
    real.mkdir()
    program = HEAD + OPTIMIZER + SHARDED + LOOP.format(loss=LOSSES["call"])
    program += f"""\
if dist.get_rank() == 0:
    torch.save({{"step": 2}}, "{real}/state.pt")
    with open("{real}/log.txt", "a") as log:
        log.write("done")
    with open("{real}/gone.txt", "w") as log:
        log.write("done")
    os.remove("{real}/gone.txt")
    with open("inside.txt", "w") as log:
        log.write("done")
"""
    proof = proof_of(program + END, project)
    assert proof["outside"] == [f"{real}/log.txt", f"{real}/state.pt"]


@pytest.mark.parametrize("command", [prove_command, run_command], ids=["prove", "run"])
def test_an_option_of_the_program_comes_after_two_dashes(command: Any, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    result = CliRunner().invoke(command, [str(script), "--lr", "1"])
    assert result.exit_code == 2
    assert f"{script} -- --lr 1" in result.output


@pytest.mark.usefixtures("forked")
def test_a_program_that_lacks_arguments_says_so_once(tmp_path: Path) -> None:
    wanted = "parser = argparse.ArgumentParser()\n"
    wanted += 'parser.add_argument("--data", required=True)\nargs = parser.parse_args()\n'
    program = HEAD + wanted + OPTIMIZER + SHARDED + LOOP.format(loss=LOSSES["call"]) + END
    (tmp_path / "train.py").write_text(program)
    result = CliRunner().invoke(prove_command, [str(tmp_path / "train.py")])
    assert result.exit_code == 2
    assert result.output.count("arguments are required: --data") == 1
    assert "after `--`" in result.output and "NOT REACHED" not in result.output

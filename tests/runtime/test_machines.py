"""Two nodes, as two launchers on this machine that meet on the loopback."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from migrations import FIXTURES

from fsdplint.cli.main import main


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_two_nodes_come_to_the_same_verdict(tmp_path: Path) -> None:
    shared, port = tmp_path / "shared", free_port()
    nodes = []
    for rank in range(2):
        folder = tmp_path / f"node{rank}"  # each has its own copy of the program
        folder.mkdir()
        shutil.copy(FIXTURES / "fsdp1" / "flat_script.py", folder / "train.py")
        command = [sys.executable, "-m", "fsdplint", "prove", "train.py"]
        command += ["--nnodes", "2", "--node-rank", str(rank), "--nproc-per-node", "1"]
        command += ["--rdzv-endpoint", f"127.0.0.1:{port}", "--keep", str(shared)]
        command += ["--json", str(tmp_path / f"proof{rank}.json"), "--timeout", "120"]
        nodes.append(
            subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    outputs = [node.communicate(timeout=300)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], "\n".join(outputs)
    for rank in range(2):
        proof = json.loads((tmp_path / f"proof{rank}.json").read_text())
        assert [fix["verdict"] for fix in proof["fixes"]] == ["proven"] * 3
        assert [end["rank"] for end in proof["after"]["ranks"]] == [0, 1]
        # The files are named as this node has them.
        assert {fix["filename"] for fix in proof["fixes"]} == {
            str(tmp_path.resolve() / f"node{rank}" / "train.py")
        }
    assert "3 proven (2 ranks" in outputs[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--nnodes", "2"), "--nnodes needs --rdzv-endpoint"),
        (("--nnodes", "2", "--rdzv-endpoint", "a:1"), "a --keep that all machines see"),
        (("--node-rank", "1"), "--node-rank 1 must be less than --nnodes 1"),
    ],
)
def test_what_does_not_go_together(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    result = CliRunner().invoke(main, ["prove", *options, str(script)])
    assert result.exit_code == 2
    assert message in result.output

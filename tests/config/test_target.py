"""Which torch a program is for: the setting, the option, the project's requirements."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdplint.cli.main import main
from fsdplint.config.target_torch import explicit, of_project, required_torch
from fsdplint.trace.torch_target import Target

PROGRAM = """\
import torch
from torch.distributed._composable.fsdp import fully_shard

fully_shard(torch.nn.Linear(8, 8))
"""


def of_requirements(folder: Path, *lines: str) -> tuple[str | None, str | None] | None:
    (folder / "requirements.txt").write_text("\n".join(lines) + "\n")
    found = required_torch(folder)
    return None if found is None else (found.oldest, found.newest)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torch>=2.4", ("2.4", None)),
        ("torch==2.5.1", ("2.5", "2.5")),
        ("torch==2.6.0+cu124  # CUDA", ("2.6", "2.6")),
        ("torch==2.6.*", ("2.6", "2.6")),
        ("torch~=2.6.0", ("2.6", "2.6")),
        ("torch~=2.6", ("2.6", None)),
        ("torch>=2.4,<2.8", ("2.4", "2.7")),
        ("torch<2.8.1", (None, "2.8")),
        ("torch<=2.7", (None, "2.7")),
        ("torch<3", None),
        ("torch>=2.6,<3", ("2.6", None)),
        ("torch>=2.6,<2.99", ("2.6", None)),
        ("torch[opt-einsum] >= 2.7 ; python_version >= '3.10'", None),
        ("torch==2.2.2; sys_platform == 'darwin'", (None, "2.2")),
        ("torch", None),
        ("torchvision==0.20", None),
        ("torch @ https://example.org/torch-2.5.1.whl", None),
        ("torch==", None),
        ("# torch==2.5", None),
        ("-r more.txt", None),
        ("torch==2.5.1 --hash=sha256:12", ("2.5", "2.5")),
    ],
)
def test_a_requirement(line: str, expected: object, tmp_path: Path) -> None:
    assert of_requirements(tmp_path, "numpy", line) == expected


def test_several_requirements(tmp_path: Path) -> None:
    assert of_requirements(tmp_path, "torch==2.5.1", "torch==2.7.0") == ("2.5", "2.7")
    assert of_requirements(tmp_path, "torch==2.5.1", "torch>=2.6") == ("2.5", None)
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["torch>=2.3"]\n')
    assert of_requirements(tmp_path, "torch==2.5.1") == ("2.3", None)


def test_the_other_files(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["numpy"]\n'
        '[project.optional-dependencies]\ngpu = ["torch>=2.5"]\n'
    )
    assert required_torch(tmp_path) == Target("2.5", None, "pyproject.toml: torch>=2.5")
    (tmp_path / "pyproject.toml").write_text("[project]\ndependencies = 'torch==2.5'\n")
    assert required_torch(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text("not torch = toml")
    assert required_torch(tmp_path) is None
    (tmp_path / "setup.cfg").write_text(
        "[options]\ninstall_requires =\n    numpy\n    torch == 2.5.1\n"
    )
    assert required_torch(tmp_path) == Target("2.5", "2.5", "setup.cfg: torch==2.5.1")


def test_the_nearest_requirements(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["torch>=2.3"]\n')
    inner = tmp_path / "examples" / "one"
    inner.mkdir(parents=True)
    script = inner / "train.py"
    script.write_text("")
    assert of_project(script, tmp_path) == Target("2.3", None, "pyproject.toml: torch>=2.3")
    (inner / "requirements.txt").write_text("numpy\n")
    assert of_project(script, tmp_path) == Target("2.3", None, "pyproject.toml: torch>=2.3")
    (inner / "requirements.txt").write_text("torch==2.7.1\n")
    assert of_project(script, tmp_path) == Target("2.7", "2.7", "requirements.txt: torch==2.7.1")
    (inner / "requirements.txt").write_text("torch\n")
    assert of_project(inner, tmp_path) is None
    assert of_project(tmp_path, tmp_path) == Target("2.3", None, "pyproject.toml: torch>=2.3")


def test_what_a_target_answers() -> None:
    assert explicit(None) is None
    target = Target("2.5", "2.5")
    assert target.lacks("2.6") and not target.lacks("2.5")
    assert target.predates("2.6") and not target.predates("2.5")
    # whoever uses FSDP2 has a torch with FSDP2, whatever the requirements say
    assert not Target("2.0").predates("2.4")
    assert not Target("2.0").lacks("2.13")
    assert not Target("2.10").predates("2.9")


def concise(*arguments: str) -> str:
    return CliRunner().invoke(main, [*arguments, "--output-format", "concise"]).output


def test_who_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option, then the setting, then the requirements."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "setup.py").write_text("")
    assert "FSDP213" in concise("--select", "FSDP213", "train.py")
    (tmp_path / "requirements.txt").write_text("torch>=2.4\n")
    assert "FSDP213" not in concise("--select", "FSDP213", "train.py")
    (tmp_path / "pyproject.toml").write_text('[tool.fsdplint]\ntarget-torch = "2.6"\n')
    assert "FSDP213" in concise("--select", "FSDP213", "train.py")
    assert "FSDP213" not in concise("--select", "FSDP213", "--target-torch", "2.5", "train.py")
    wrong = CliRunner().invoke(main, ["--target-torch", "new", "train.py"])
    assert wrong.exit_code == 2
    assert "--target-torch must be a version" in wrong.output


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2.2", "`torch.distributed._composable.fsdp` came with torch 2.3; target-torch is 2.2"),
        ("2.3", ""),
    ],
)
def test_a_target_before_fsdp2(
    version: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    options = ["--select", "FSDP215", "--target-torch", version, "train.py"]
    output = CliRunner().invoke(main, options).output
    assert message in output and ("FSDP215" in output) == bool(message)


@pytest.mark.parametrize("version", ["2.1", "1.12.1"])
def test_a_fix_says_what_it_waits_for(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
        "model = FSDP(torch.nn.Linear(8, 8))\n"
    )
    (tmp_path / "requirements.txt").write_text(f"torch=={version}\n")
    (tmp_path / "setup.py").write_text("")
    reason = f"the fix needs torch 2.6; requirements.txt asks for torch=={version}"
    assert reason in CliRunner().invoke(main, ["train.py"]).output
    assert reason in CliRunner().invoke(main, ["migrate", "train.py"]).output


CHECKPOINT = """\
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = FSDP(torch.nn.Linear(8, 8))
dcp.load_state_dict({"model": model.state_dict()}, dcp.FileSystemReader("ckpt"){more})
"""


@pytest.mark.parametrize(
    ("requirement", "more", "output"),
    [
        ("torch", "", "[*]"),
        ("torch>=2.1", "", None),
        ("torch==2.1.2", ", no_dist=True", None),
        ("torch>=2.2", "", "[*]"),
        ("torch==2.4.0", ", no_dist=True", ""),
        ("torch", ", no_dist=True", "[*]"),
    ],
)
def test_new_names_of_checkpoints_wait_for_their_torch(
    tmp_path: Path, requirement: str, more: str, output: str | None
) -> None:
    """None: nothing is found; "": there is no fix."""
    (tmp_path / "train.py").write_text(CHECKPOINT.replace("{more}", more))
    (tmp_path / "requirements.txt").write_text(requirement + "\n")
    (tmp_path / "setup.py").write_text("")
    options = ["-n", "--select", "FSDP214", "--output-format", "concise"]
    found = CliRunner().invoke(main, [*options, str(tmp_path / "train.py")]).output
    assert ("FSDP214" in found) is (output is not None)
    if output is not None:
        assert ("FSDP214 [*]" in found) is bool(output)

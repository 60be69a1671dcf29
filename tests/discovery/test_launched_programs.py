"""Programs that do not mention FSDP, and that a script of their project starts with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.discovery.prefilter import relevant, select
from fsdplint.discovery.walk import File

PROGRAM = "from accelerate import Accelerator\nAccelerator().prepare(model)\n"
SETTINGS = "distributed_type: FSDP\n"


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("accelerate launch --use_fsdp train.py\n", True),
        ("accelerate launch --config_file settings/fsdp.yaml train.py\n", True),
        ("accelerate launch --config_file fsdp.yaml ../train.py\n", True),  # beside the script
        ("accelerate launch train.py\n", False),
        ("accelerate launch --config_file settings/ddp.yaml train.py\n", False),
        ("accelerate launch --config_file $SETTINGS train.py\n", False),
        ("accelerate launch --use_fsdp other.py\n", False),
        ("torchrun train.py\n", False),
    ],
)
def test_a_program_that_a_script_starts(tmp_path: Path, script: str, found: bool) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "settings").mkdir()
    for name, text in {"run.sh": script, "fsdp.yaml": SETTINGS, "ddp.yaml": "a: 1\n"}.items():
        (tmp_path / "settings" / name).write_text(text)
    main, other = tmp_path / "train.py", tmp_path / "tools.py"
    main.write_text(PROGRAM)
    other.write_text("import accelerate\n")
    assert relevant([main, other]) == [main] * found
    assert select([File(main), File(other)], searched=[tmp_path]).paths == [main] * found


def test_a_program_without_accelerate(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "run.sh").write_text("accelerate launch --use_fsdp train.py\n")
    main = tmp_path / "train.py"
    main.write_text("from transformers import Trainer\n")
    assert relevant([main]) == []

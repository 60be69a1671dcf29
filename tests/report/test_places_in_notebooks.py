"""Places in notebooks that messages name."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from fsdplint.cli.main import main

CELLS = [
    "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n",
    "class Wrapper(FSDP):\n    pass\n",
    'torch.distributed.init_process_group("nccl")\nmodel = FSDP(torch.nn.Linear(4, 4))\n',
]


def test_advice_names_the_cell_of_a_blocker(tmp_path: Path) -> None:
    notebook = {
        "cells": [
            {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None,
             "source": cell.splitlines(keepends=True)}
            for cell in CELLS
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }  # fmt: skip
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps(notebook))
    shown = CliRunner().invoke(main, ["check", "--no-cache", str(path)]).output
    text = " ".join(shown.split())
    assert "train.ipynb:cell 3:2:9: FSDP201" in text
    assert "because of" in text and "train.ipynb:cell 2:1" in text
    for line in range(1, 100):
        assert f"train.ipynb:{line} " not in text

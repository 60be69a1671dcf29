"""The command that measures on GPUs, on emulated devices: that it comes to its end and says what it did."""

from __future__ import annotations

from pathlib import Path

import measure
import pytest


def test_a_rehearsal(tmp_path: Path) -> None:
    out = tmp_path / "RESULTS.md"
    only = ["--only", "fsdp1/side_input", "--workers", "1", "--parts", "large,fixtures"]
    assert measure.main(["--device", "cpu", "--out", str(out), *only]) == 0
    text = out.read_text()
    assert "A rehearsal on emulated devices: no number here means anything" in text
    assert "| FSDP1 |" in text and "| FSDP2 |" in text
    assert text.count("| `fsdp1/side_input.py` | agree |") == 2


def test_without_a_gpu_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "gpus", list)
    assert measure.main([]) == 2
    assert "no GPU here" in capsys.readouterr().err

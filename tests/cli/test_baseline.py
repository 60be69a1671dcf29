"""The baseline of known findings."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command import BAD, LINE, TWICE, concise, run


def test_a_baseline(train: Path, folder: Path) -> None:
    result = run("baseline", ".")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "1 finding recorded in fsdplint-baseline.json.",
        "Checks use it with `--baseline fsdplint-baseline.json`, or with the setting `baseline`.",
    ]
    data = json.loads((folder / "fsdplint-baseline.json").read_text())
    assert data["version"] == 1
    (entry,) = data["findings"].values()
    assert entry == {"path": "train.py", "code": "FSDP101", "count": 1}
    with_it = ("--baseline", "fsdplint-baseline.json", "train.py")
    assert run(*with_it).output == "All checks passed.\n"
    assert concise("train.py") == ["train.py:10:FSDP101"]
    # Moved, with another comment and other spaces around it: the same finding.
    moved = "# hello\n\n" + BAD.replace("keep", "another").replace("loss = ", "loss  =  ")
    train.write_text(moved)
    assert concise(*with_it) == []
    # Known findings are not fixed, new ones are; where there are more, the later ones are new.
    train.write_text(TWICE)
    assert concise(*with_it) == ["train.py:11:FSDP101"]
    train.write_text(BAD.replace(LINE, LINE + LINE))
    assert concise(*with_it) == ["train.py:11:FSDP101"]
    assert run(*with_it, "--fix").exit_code == 0
    assert train.read_text() == BAD.replace(LINE, LINE + LINE.replace(".forward", ""))


def test_a_baseline_is_kept_where_something_cannot_be_checked(train: Path, folder: Path) -> None:
    file = folder / "fsdplint-baseline.json"
    (folder / "broken.py").write_text("import torch.distributed.fsdp\n(")
    for wrong in ("trian.py", "broken.py", "."):
        for before in (None, '{"version": 1, "findings": {}}'):
            if before is not None:
                file.write_text(before)
            result = run("baseline", wrong)
            assert (result.exit_code, result.stdout) == (2, "")
            assert "FSDP901" in result.stderr
            assert "error: nothing is recorded in fsdplint-baseline.json, because " in result.stderr
            assert (file.read_text() if file.exists() else None) == before
        file.unlink()


def test_a_baseline_of_the_settings(train: Path, folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.fsdplint]\nbaseline = "known.json"\n')
    missing = run("train.py")
    assert missing.exit_code == 2
    assert "known.json: No such file or directory; `fsdplint baseline` writes it" in missing.stderr
    assert run("baseline").output == "1 finding recorded in known.json.\n"
    assert concise(".") == []
    assert concise("--no-baseline", ".") == ["train.py:10:FSDP101"]
    # It says the same from elsewhere, and anew once it is renewed.
    (folder / "below").mkdir()
    os.chdir(folder / "below")
    assert run("../train.py").exit_code == 0
    os.chdir(folder)
    first = (folder / "known.json").read_bytes()
    assert run("baseline").exit_code == 0
    assert (folder / "known.json").read_bytes() == first
    for text in ("{}", "[]", "x", '{"version": 2, "findings": {}}', '{"version": 1}'):
        (folder / "known.json").write_text(text)
        broken = run("train.py")
        assert broken.exit_code == 2
        assert "known.json: " in broken.stderr and "baseline" in broken.stderr


@pytest.mark.parametrize("key", ["baseline", "cache-dir"])
@pytest.mark.parametrize(
    "name",
    ["~/known", "~", "../known", "below/../../known", "ABSOLUTE/known", "link/known", "alias"],
)
def test_settings_name_nothing_outside_of_their_folder(
    train: Path, folder: Path, key: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (folder / "link").symlink_to(outside)
    (folder / "alias").symlink_to(outside / "known")
    name = name.replace("ABSOLUTE", str(outside))
    (folder / "pyproject.toml").write_text(f"[tool.fsdplint]\n{key} = {json.dumps(name)}\n")
    for command in (("train.py",), ("--fix", "train.py"), ("baseline", "train.py")):
        result = run(*command)
        assert result.exit_code == 2
        assert f"[tool.fsdplint] {key}: must lie in the folder of this file" in result.stderr
        assert f"--{key} on the command line names another place" in result.stderr
    assert os.listdir(outside) == [] and train.read_text() == BAD
    # The command line may.
    (folder / "pyproject.toml").unlink()
    assert run("baseline", "-o", str(outside / "known"), ".").exit_code == 0
    assert run("--baseline", str(outside / "known"), ".").exit_code == 0


def test_the_scope_of_a_finding_belongs_to_it(folder: Path) -> None:
    text = BAD.replace("loss = model", "def step():\n    return model").replace(
        "loss.backward()", "step().backward()"
    )
    (folder / "train.py").write_text(text)
    run("baseline", ".")
    with_it = ("--baseline", "fsdplint-baseline.json", ".")
    assert concise("train.py") == ["train.py:11:FSDP101"]
    assert concise(*with_it) == []
    (folder / "train.py").write_text(text.replace("step()", "other()"))
    assert concise(*with_it) == ["train.py:11:FSDP101"]

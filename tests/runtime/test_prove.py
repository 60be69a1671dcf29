"""`fsdplint prove` from its command line: what it says, its exit code, what it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from json_schemas import validate
from migrations import SABOTAGED, flat_after, flat_before, replaced

import fsdplint
from fsdplint.cli.prove import prove_command
from fsdplint.registry.example_files import examples_of
from fsdplint.registry.examples import without_markers
from fsdplint.registry.rules import all_rules
from fsdplint.runtime.launch.copies import CopyError, copy_project, project_root
from fsdplint.runtime.launch.workplace import WorkplaceError, workplace
from fsdplint.runtime.proof.program_pair import Options, Pair

SHORT = (("STEPS = 8", "STEPS = 3"), ("MAX_NORM = 1.0", "MAX_NORM = 0.3"))


def prove(*args: str | Path) -> Result:
    before = temporary()
    result = CliRunner().invoke(prove_command, [str(arg) for arg in args])
    assert temporary() == before, "a temporary folder is left behind"
    return result


def temporary() -> set[str]:
    """The folders of proofs of this process; others may run proofs of their own."""
    mine = f"fsdplint-prove-{os.getpid()}-*"
    return {path.name for path in Path(tempfile.gettempdir()).glob(mine)}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the FSDP1 program and its migration by hand."""
    (tmp_path / "before.py").write_text(replaced(flat_before(), SHORT))
    (tmp_path / "after.py").write_text(replaced(flat_after(), SHORT))
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("forked")
def test_a_hand_migration_is_proven(project: Path) -> None:
    before = sorted(project.rglob("*"))
    out = project / "reports" / "proof.json"
    result = prove("before.py", "--against", "after.py", "--json", out)
    assert result.exit_code == 0, result.output
    assert "PROVEN" in result.output and "1 proven (2 ranks" in result.output
    proof: dict[str, Any] = json.loads(out.read_text())
    validate("proof", proof)
    assert proof["proven"] is True
    assert [rank["status"] for rank in proof["after"]["ranks"]] == ["ok", "ok"]
    assert [len(steps) for steps in proof["before"]["steps"]] == [3, 3]
    # The programs write checkpoints into their current folder: that is their copies.
    assert sorted(project.rglob("*")) == sorted([*before, out.parent, out])


@pytest.mark.usefixtures("forked")
def test_a_sabotaged_migration_is_refuted(project: Path) -> None:
    pairs, complaint = SABOTAGED["another weight decay"]
    after = project / "after.py"
    after.write_text(replaced(after.read_text(), pairs))
    proof = fsdplint.prove("before.py", against="after.py")
    assert not proof.holds
    (judged,) = proof.fixes
    assert judged.verdict == "refuted"
    assert any(reason.startswith(f"{complaint}: step 1") for reason in judged.reasons)
    assert proof.data["proven"] is False


@pytest.mark.usefixtures("forked")
def test_a_migration_that_shards_in_another_way_is_no_plain_proof(project: Path) -> None:
    after = project / "after.py"
    mesh = 'mesh=dist.init_device_mesh("cpu", (2, 1), mesh_dim_names=("copies", "parts"))'
    text = after.read_text().replace("fully_shard(block)", f"fully_shard(block, {mesh})")
    after.write_text(text.replace("fully_shard(model)", f"fully_shard(model, {mesh})"))
    out, summary, page = (project / f"proof.{kind}" for kind in ("json", "md", "html"))
    options = ("--json", out, "--markdown", summary, "--html", page)
    result = prove("before.py", "--against", "after.py", *options)
    assert result.exit_code == 1
    first, why, where, *_ = result.stdout.splitlines()
    assert first.startswith("OTHER LAYOUT")
    assert why.strip() == "both programs train the same, but the ranks hold or send something else"
    assert "whole on each of 2 ranks (0, 1) after" in where
    assert "1 other layout (2 ranks" in summary.read_text().splitlines()[2]
    assert '<span class="badge other-layout">other layout</span>' in page.read_text()
    proof = json.loads(out.read_text())
    assert proof["proven"] is False
    assert [fix["verdict"] for fix in proof["fixes"]] == ["other layout"]
    layout = {check["name"] for check in proof["checks"] if check["layout"] and not check["holds"]}
    assert layout == {
        "placement of parameters",
        "bytes of parameters",
        "bytes of gradients",
        "bytes of optimizer state",
    }


@pytest.mark.usefixtures("forked")
def test_the_fixes_of_a_program_are_proven_one_by_one(project: Path) -> None:
    out, summary = project / "proof.json", project / "proof.md"
    text = (project / "before.py").read_text()
    result = prove("before.py", "--oracle", "--json", out, "--markdown", summary)
    assert result.exit_code == 0, result.output
    proof = json.loads(out.read_text())
    validate("proof", proof)
    lines = text.splitlines()
    found = {lines[fix["line"] - 1].strip(): fix["verdict"] for fix in proof["fixes"]}
    assert found == {
        "model = FSDP(": "proven",
        "grad_norm = model.clip_grad_norm_(MAX_NORM)": "proven",
        "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save_policy):": "proven",
    }
    added = [line for line in proof["diff"].splitlines() if line.startswith("+")]
    assert any("fully_shard(model" in line for line in added)
    assert (project / "before.py").read_text() == text  # only the copy is fixed
    clipping = next(fix for fix in proof["fixes"] if fix["code"] == "FSDP204")
    assert clipping["before"] == "gradients-clipped (method) x3"
    assert clipping["after"].startswith("gradients-clipped (utils) x3")
    assert "gradient norms at the optimizer step" in clipping["checks"]
    told = {check["name"]: check for check in proof["checks"] if not check["binding"]}
    assert told["without sharding: losses"]["holds"] and told["peak memory of a rank"]
    assert summary.read_text().count("| **proven** |") == 3


@pytest.mark.usefixtures("forked")
def test_a_program_that_trains_nothing_is_compared_without_sharding(project: Path) -> None:
    after = project / "after.py"
    broken = project / "broken.py"
    pairs, _ = SABOTAGED["optimizer before sharding"]
    broken.write_text(replaced(after.read_text(), pairs))
    out = project / "proof.json"
    result = prove("broken.py", "--steps", "2", "--json", out)
    assert result.exit_code == 0, result.output
    assert "the program before trains nothing" in result.output
    assert "compared with the program without sharding" in result.output
    proof = json.loads(out.read_text())
    assert [fix["code"] for fix in proof["fixes"]] == ["FSDP103"]
    assert [len(steps) for steps in proof["without_sharding"]["steps"]] == [2, 2]
    assert next(c for c in proof["checks"] if c["name"] == "parameters")["holds"]


@pytest.mark.usefixtures("forked")
def test_a_migration_that_mends_an_error_is_compared_without_sharding(project: Path) -> None:
    """FSDP1 clips by the norm of each rank's part here, and FSDP2 by that of all."""
    script = project / "local.py"
    text = (project / "before.py").read_text()
    method = "model.clip_grad_norm_(MAX_NORM)"
    assert method in text
    function = "torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)"
    script.write_text(text.replace(method, function))
    result = prove("local.py")
    assert result.exit_code == 0, result.output
    assert "does not train as intended: FSDP404 at local.py" in result.output
    assert "compared with the program without sharding" in result.output


@pytest.mark.usefixtures("forked")
def test_a_migration_of_a_program_that_fails_is_not_refuted_by_that(project: Path) -> None:
    script = project / "failing.py"
    text = (project / "before.py").read_text()
    script.write_text(text.replace("dist.barrier()", "raise ValueError('the disk is full')"))
    result = prove("failing.py", "--steps", "9")
    assert result.exit_code == 1
    assert "NOT COMPARABLE" in result.output and "REFUTED" not in result.output
    assert "the program fails in the same way before and after" in result.output


@pytest.mark.parametrize("code", ["FSDP431", "FSDP512"])
def test_a_fix_that_changes_the_steps_is_left_out(code: str, project: Path) -> None:
    """It gives them other gradients or data."""
    rule = next(rule for rule in all_rules() if rule.code == code)
    (project / "epochs.py").write_text(without_markers(examples_of(rule).bad[0].code))
    result = prove("epochs.py")
    assert result.exit_code == 1
    assert "NOT COMPARABLE" in result.output and code in result.output
    assert "the fix changes the steps on purpose" in result.output


@pytest.mark.usefixtures("forked")
def test_a_program_that_fails_before_and_not_after(project: Path) -> None:
    after = project / "after.py"
    broken = project / "broken.py"
    broken.write_text(after.read_text().replace("model(inputs)", "model.forward(inputs)"))
    page = project / "proof.html"
    result = prove("broken.py", "--steps", "2", "--html", page)
    assert result.exit_code == 1
    # It fails without sharding as well: the parameters are DTensors there too.
    assert "NOT COMPARABLE" in result.output
    assert "FSDP101" in result.output and "mixed torch.Tensor and DTensor" in result.output
    assert "How it ended" in page.read_text()
    assert "the rule fired there at run time before, and does not after" in result.output
    assert "at broken.py:" in result.output and "fsdplint-prove-" not in result.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("missing.py",), "no such file or folder"),
        (("before.py", "--against", "missing.py"), "no such file or folder"),
        (("before.py", "--against", "after.py", "--keep", "."), "is not empty"),
        (("before.py", "--html", "before.py/proof.html"), "cannot write before.py/proof.html"),
        (("before.py", "--target-torch", "new"), "--target-torch"),
    ],
)
def test_what_cannot_be_done_is_said(project: Path, args: tuple[str, ...], message: str) -> None:
    result = prove(*args)
    assert result.exit_code == 2
    assert message in result.output


def test_nothing_to_prove(project: Path) -> None:
    clean = project / "clean.py"
    clean.write_text("print('hello')\n")
    result = prove("clean.py")
    assert result.exit_code == 0
    assert "Nothing to prove: there are no findings." in result.output


HOLD = """\
import time
from fsdplint.runtime.launch.workplace import workplace
with workplace("run", None) as folder:
    print(folder, flush=True)
    time.sleep(1000)
"""


def test_the_folder_of_a_killed_run_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        theirs = Path(holder.stdout.readline().strip())
        try:
            with workplace("prove", None) as work:
                assert work.is_dir() and theirs.is_dir()  # it is in use
        finally:
            holder.kill()
    assert theirs.is_dir() and not work.exists()
    with workplace("prove", None):
        assert not theirs.exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "mode"), [("fsdplint-clone", 0o700), ("fsdplint-prove-12-ab34cd56", 0o755)]
)
def test_a_folder_that_only_looks_like_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: int
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / name
    folder.mkdir(mode)
    folder.chmod(mode)
    (folder / ".in-use").touch()
    (folder / "train.py").touch()
    with workplace("prove", None):
        pass
    assert (folder / "train.py").exists()


def test_nothing_is_mixed_into_a_folder_of_the_users(tmp_path: Path) -> None:
    users = tmp_path / "results"
    users.mkdir()
    (users / "loss.csv").touch()
    for shared in (False, True):
        with pytest.raises(WorkplaceError, match="is not empty"), workplace("run", users, shared):
            pass
    assert os.listdir(users) == ["loss.csv"]
    with workplace("prove", tmp_path / "new", shared=True) as work:
        (work / "before").mkdir()
        with workplace("prove", tmp_path / "new", shared=True) as of_another_node:
            assert of_another_node == work
    with pytest.raises(WorkplaceError, match="is not empty"), workplace("run", tmp_path / "new"):
        pass


# Copies -----------------------------------------------------------------------------------------


def test_what_is_copied(tmp_path: Path) -> None:
    root = tmp_path / "project"
    for name in ("src/a.py", ".git/config", ".venv/pyvenv.cfg", "env/pyvenv.cfg", "data/x.bin"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 100)
    (root / "link.py").symlink_to("src/a.py")
    assert project_root(root / "src" / "a.py") == root
    copy = tmp_path / "copy"
    copy_project(root, copy)
    found = {str(path.relative_to(copy)) for path in copy.rglob("*") if not path.is_dir()}
    assert found == {"src/a.py", "data/x.bin", "link.py"}
    assert (copy / "link.py").is_symlink()
    inside = root / "kept"
    copy_project(root, inside / "before", excluded=inside)
    assert {path.name for path in (inside / "before").iterdir()} == {"src", "data", "link.py"}


def test_a_project_that_is_too_large(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "data.bin").write_bytes(b"x" * 1000)
    with pytest.raises(CopyError, match="is not copied"):
        copy_project(root, tmp_path / "copy", limit=999)
    assert not (tmp_path / "copy").exists()


def test_a_script_without_a_project_is_in_its_own_folder(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "train.py"
    path.parent.mkdir()
    path.write_text("")
    assert project_root(path) == path.parent


def test_two_copies_of_a_project_run_in_the_same_folder_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, copy = tmp_path / "new" / "old", tmp_path / "new", tmp_path / "copy"
    for folder in (old / "src", new / "src", copy / "src"):
        folder.mkdir(parents=True)
    script, other = old / "src" / "train.py", new / "src" / "train.py"
    pair = Pair(Options(script=script), tmp_path, old, script, new, other)
    monkeypatch.chdir(new)
    assert pair._folder(old, copy, script) == pair._folder(new, copy, other) == copy
    monkeypatch.chdir(old / "src")
    assert pair._folder(old, copy, script) == pair._folder(new, copy, other) == copy / "src"
    monkeypatch.chdir(tmp_path)
    assert pair._folder(old, copy, script) == pair._folder(new, copy, other) == copy / "src"

"""The command line, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import BAD, FIXED, FIXTURES, run

from fsdplint.registry.example_files import examples_of
from fsdplint.registry.rules import rule_by_code


def test_findings(folder: Path) -> None:
    (folder / "train.py").write_text(BAD)
    result = run("train.py")
    assert result.exit_code == 1, result.output
    assert result.output.startswith("train.py:10:8: FSDP101 [*] ")
    assert "10 | loss = model.forward(torch.randn(2, 4)).sum()" in result.output
    assert "[*] 1 fixable with --fix." in result.output
    assert run("check", "train.py").output == result.output
    assert run().exit_code == run("--help").exit_code == 0 or run().exit_code == 2


def test_the_same_twice_and_from_a_folder(folder: Path) -> None:
    for name in ("b.py", "a.py"):
        (folder / name).write_text(BAD)
    first = run("--output-format", "concise", "b.py", "a.py").output
    assert first == run("check", ".", "--output-format", "concise").output
    assert [line.split(":")[0] for line in first.splitlines()[:2]] == ["a.py", "b.py"]


def test_clean(folder: Path) -> None:
    (folder / "train.py").write_text(FIXED)
    result = run("train.py")
    assert (result.exit_code, result.output) == (0, "All checks passed.\n")


@pytest.mark.parametrize("command", [(), ("check", "--fix"), ("baseline",), ("migrate", "--fix")])
def test_an_empty_path_is_not_the_current_folder(folder: Path, command: tuple[str, ...]) -> None:
    (folder / "train.py").write_text(BAD)
    for paths in ([""], ["train.py", ""]):
        result = run(*command, *paths)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "'': no such file or folder" in result.stderr
    assert [path.name for path in folder.iterdir()] == ["train.py"]
    assert (folder / "train.py").read_text() == BAD


def test_exit_zero(folder: Path) -> None:
    (folder / "train.py").write_text(BAD)
    assert run("--exit-zero", "train.py").exit_code == 0
    assert run("--exit-zero", "train.py", "gone.py").exit_code == 2


def test_fix(folder: Path) -> None:
    file = folder / "train.py"
    file.write_text(BAD)
    file.chmod(0o750)
    result = run("--fix", "train.py")
    assert (result.exit_code, result.output) == (0, "Fixed 1 finding; none remains.\n")
    assert file.read_text() == FIXED
    assert file.stat().st_mode & 0o777 == 0o750
    assert run("--fix", "train.py").output == "All checks passed.\n"


def test_fix_keeps_encoding_mark_and_line_ends(folder: Path) -> None:
    file = folder / "train.py"
    text = BAD.replace("keep this", "über").replace("\n", "\r\n")
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert run("--fix", "train.py").exit_code == 0
    wanted = text.replace(".forward", "").encode()
    assert file.read_bytes() == b"\xef\xbb\xbf" + wanted
    file.write_bytes(b"# coding: latin-1\n" + text.encode("latin-1"))
    assert run("--fix", "train.py").exit_code == 0
    assert file.read_bytes() == b"# coding: latin-1\n" + text.replace(".forward", "").encode(
        "latin-1"
    )


def test_unsafe_fixes(folder: Path) -> None:
    file = folder / "train.py"
    rule = rule_by_code("FSDP104")
    assert rule is not None
    file.write_text(examples_of(rule).bad[0].code)
    before = file.read_text()
    (found,) = json.loads(run("--output-format=json", "train.py").output)
    assert (found["code"], found["fix"]["safety"]) == ("FSDP104", "unsafe")
    assert "1 fixable with --fix --unsafe-fixes." in run("train.py").output
    assert run("--fix", "train.py").exit_code == 1
    assert file.read_text() == before
    (folder / "pyproject.toml").write_text("[tool.fsdplint]\nunsafe-fixes = true\n")
    assert run("--no-unsafe-fixes", "--diff", "train.py").exit_code == 0
    assert run("--diff", "train.py").exit_code == 1
    (folder / "pyproject.toml").unlink()
    assert run("--fix", "--unsafe-fixes", "train.py").exit_code == 0
    assert file.read_text() != before


def test_diff_writes_nothing(folder: Path) -> None:
    file = folder / "train.py"
    file.write_text(BAD)
    result = run("--diff", "train.py")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[:2] == ["--- train.py", "+++ train.py"]
    assert "-loss = model.forward(torch" in result.stdout
    assert "+loss = model(torch" in result.stdout
    assert result.stderr == "Would fix 1 finding.\n"
    assert file.read_text() == BAD
    file.write_text(FIXED)
    result = run("--diff", "train.py")
    assert (result.exit_code, result.output) == (0, "")


def test_stdin(folder: Path) -> None:
    result = run("-", input=BAD)
    assert result.exit_code == 1
    assert result.output.startswith("<stdin>:10:8: FSDP101")
    result = run("--stdin-filename", "pkg/train.py", "--output-format", "concise", "-", input=BAD)
    assert result.output.startswith(f"{Path('pkg/train.py')}:10:8: FSDP101")
    result = run("--fix", "-", input=BAD)
    assert (result.exit_code, result.stdout) == (0, FIXED)
    assert result.stderr == "Fixed 1 finding; none remains.\n"
    assert run("--fix", "-", input=b"x = 1\r\n").stdout_bytes == b"x = 1\r\n"
    assert run("--diff", "-", input=BAD).stdout.startswith("--- <stdin>\n")
    marked = b"\xef\xbb\xbf" + BAD.encode()
    assert run("--fix", "-", input=marked).stdout_bytes == b"\xef\xbb\xbf" + FIXED.encode()
    assert list(folder.iterdir()) == []


def test_stdin_sees_the_other_files_of_the_project(folder: Path) -> None:
    (folder / "lib.py").write_text(
        "from torch.distributed.fsdp import fully_shard\n"
        "def wrap(model):\n    fully_shard(model)\n    return model\n"
    )
    text = (
        "from torch import nn\nimport torch\nfrom lib import wrap\n"
        "model = wrap(nn.Linear(2, 2))\nmodel.forward(torch.ones(2))\n"
    )
    result = run("--stdin-filename", "train.py", "--output-format", "concise", "-", input=text)
    assert result.output.startswith("train.py:5:1: FSDP101")


def test_stdin_misuse() -> None:
    assert run("-", "a.py").exit_code == 2
    assert run("--stdin-filename", "a.py", "b.py").exit_code == 2
    broken = run("-", input=b"x = '\xff'\n")
    assert broken.exit_code == 2
    assert "<stdin>:1: FSDP901 not UTF-8" in broken.output


def test_selection(folder: Path) -> None:
    (folder / "train.py").write_text(BAD)
    for option, codes in {
        "--select=FSDP103": 0,
        "--select=FSDP1": 1,
        "--select=direct-forward-call": 1,
        "--ignore=FSDP101": 0,
        "--ignore=ALL": 0,
    }.items():
        assert run(option, "train.py").exit_code == codes, option
    wrong = run("--select", "FSDP1O1", "train.py")
    assert wrong.exit_code == 2
    assert wrong.stderr == "error: command line: unknown rule 'FSDP1O1'; did you mean FSDP101?\n"


def test_settings_of_each_file(folder: Path) -> None:
    (folder / "a").mkdir()
    for name in ("train.py", "a/train.py"):
        (folder / name).write_text(BAD)
    (folder / "a" / "pyproject.toml").write_text('[tool.fsdplint]\nignore = ["FSDP101"]\n')
    (folder / "pyproject.toml").write_text('[tool.fsdplint]\noutput-format = "concise"\n')
    result = run(".")
    assert [line.split(":")[0] for line in result.output.splitlines()[:-2]] == ["train.py"]
    run("--fix", ".")
    assert (folder / "train.py").read_text() == FIXED
    assert (folder / "a" / "train.py").read_text() == BAD


def test_broken_settings(folder: Path) -> None:
    (folder / "train.py").write_text(BAD)
    (folder / "pyproject.toml").write_text("[tool.fsdplint]\nselekt = []\n")
    result = run("train.py")
    assert result.exit_code == 2
    assert "pyproject.toml: unknown key 'selekt'" in result.stderr


def test_exclude_holds_for_a_search_and_not_for_a_named_file(folder: Path) -> None:
    (folder / "vendor").mkdir()
    (folder / "vendor" / "train.py").write_text(BAD)
    (folder / "pyproject.toml").write_text('[tool.fsdplint]\nexclude = ["vendor"]\n')
    assert run(".").exit_code == 0
    assert run("vendor/train.py").exit_code == 1


def test_forced_excludes_hold_for_named_files_too(folder: Path) -> None:
    (folder / "vendor").mkdir()
    (folder / "vendor" / "x.py").write_text(BAD)
    (folder / "train.py").write_text(BAD)
    (folder / "pyproject.toml").write_text('[tool.fsdplint]\nexclude = ["vendor"]\n')
    assert run("vendor/x.py").exit_code == 1
    for path in ("vendor/x.py", "vendor"):
        assert run("--force-exclude", path).exit_code == 0
    both = run("--force-exclude", "--output-format", "concise", "vendor/x.py", "train.py")
    assert both.exit_code == 1
    assert "train.py:10" in both.output
    assert "vendor" not in both.output
    fix = run("--force-exclude", "--fix", "-", "--stdin-filename", "vendor/x.py", input=BAD)
    assert (fix.exit_code, fix.stdout) == (0, BAD)
    text = '[tool.fsdplint]\nexclude = ["vendor"]\nforce-exclude = true\n'
    (folder / "pyproject.toml").write_text(text)
    assert run("--fix", "vendor/x.py").exit_code == 0
    assert (folder / "vendor" / "x.py").read_text() == BAD
    assert run("--no-force-exclude", "vendor/x.py").exit_code == 1


def test_hooks_force_the_excludes() -> None:
    hooks = Path(__file__).parents[2] / ".pre-commit-hooks.yaml"
    entries = [x for x in hooks.read_text().splitlines() if x.strip().startswith("entry:")]
    assert entries
    assert all("--force-exclude" in entry for entry in entries)


def test_unknown_rules_in_comments_are_named(folder: Path) -> None:
    wrong = BAD.replace("# keep this comment", "# fsdplint: ignore[nonsense]")
    (folder / "train.py").write_text(wrong)
    result = run("--output-format", "json", "train.py")
    assert result.exit_code == 1
    assert json.loads(result.stdout)
    assert result.stderr.startswith("train.py:10: warning: unknown rule 'nonsense'")
    assert result.stderr.count("\n") == 1
    (folder / "train.py").write_text("# fsdplint: file-ignore[FSDP1x, FSDP101]\n" + BAD)
    for options in ((), ("--fix",), ("--diff",)):
        result = run(*options, "train.py")
        assert result.exit_code == 0
        line = "train.py:1: warning: unknown rule 'FSDP1x'; did you mean FSDP1?"
        assert [x for x in result.stderr.splitlines() if "warning" in x] == [line]
    (folder / "train.py").write_text(BAD.replace("# keep", "# noqa: E501, FSDP101 # keep"))
    assert run("train.py").stderr == ""
    (folder / "train.py").write_text(BAD.replace("# keep", "# fsdplint: ingore[FSDP101] # keep"))
    line = (
        "train.py:10: warning: unknown comment '# fsdplint: ingore[FSDP101]'; did you mean ignore?"
    )
    assert run("train.py").stderr == line + "\n"


def test_comments(folder: Path) -> None:
    file = folder / "train.py"
    for comment in ("# noqa: FSDP101", "# fsdplint: ignore[direct-forward-call]"):
        file.write_text(BAD.replace("# keep this comment", comment))
        assert run("train.py").exit_code == 0
        before = file.read_text()
        assert run("--fix", "train.py").exit_code == 0
        assert file.read_text() == before
    file.write_text(BAD.replace("# keep this comment", "# noqa: E501"))
    assert run("train.py").exit_code == 1


MODEL = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from loop import train
train(FSDP(nn.Linear(2, 2), use_orig_params=True))
"""
LOOP = """\
import torch
def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2)).sum().backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
"""


def test_a_migration_reaches_files_that_do_not_mention_fsdp(folder: Path) -> None:
    (folder / "main.py").write_text(MODEL)
    (folder / "loop.py").write_text(LOOP)
    alone = run("main.py")
    assert alone.exit_code == 1
    assert "[*]" not in alone.output
    assert (
        "the fix also changes loop.py: name these files as well, or use --project" in alone.output
    )
    assert run("--fix", "main.py").exit_code == 1
    assert (folder / "main.py").read_text() == MODEL
    assert "[*]" in run(".").output
    assert run("--fix", ".").exit_code == 0
    assert "fully_shard" in (folder / "main.py").read_text()
    assert "nn.utils.clip_grad_norm_" in (folder / "loop.py").read_text()


def test_a_migration_stays_whole(folder: Path) -> None:
    (folder / "main.py").write_text(MODEL)
    (folder / "loop.py").write_text(LOOP.replace("norm_(1.0)", "norm_(1.0)  # noqa: FSDP204"))
    assert "FSDP204" not in run("--output-format", "concise", ".").output
    assert run("--fix", ".").exit_code == 1
    assert (folder / "main.py").read_text() == MODEL


def test_no_fix_needs_a_newer_torch_than_the_target(folder: Path) -> None:
    program = (FIXTURES / "flat_script.py").read_text()
    (folder / "train.py").write_text(program)
    settings = folder / "pyproject.toml"
    settings.write_text('[tool.fsdplint]\ntarget-torch = "2.5"\n')
    result = run("--fix", "train.py")
    assert (folder / "train.py").read_text() == program
    assert result.exit_code == 1
    assert "needs torch 2.6" in result.output
    settings.write_text('[tool.fsdplint]\ntarget-torch = "2.6"\n')
    assert run("--fix", "train.py").exit_code == 0
    assert "fully_shard" in (folder / "train.py").read_text()


def test_no_files_is_no_clean_bill(folder: Path) -> None:
    (folder / "notes.txt").write_text("fsdp")
    result = run(".")
    assert (result.exit_code, result.output) == (
        0,
        "No Python files were found; nothing was checked.\n",
    )


def test_a_folder_that_is_named_is_searched_though_it_is_ignored(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".gitignore").write_text("/build_area\n")
    (folder / "build_area").mkdir()
    (folder / "build_area" / "train.py").write_text(BAD)
    assert run(".").exit_code == 0
    assert run("build_area").exit_code == 1


@pytest.mark.parametrize("option", [("--select", "FSDP204"), ("--ignore", "FSDP201")])
def test_a_migration_needs_all_of_its_rules(folder: Path, option: tuple[str, str]) -> None:
    program = (FIXTURES / "flat_script.py").read_text()
    (folder / "train.py").write_text(program)
    result = run(*option, "--output-format", "concise", "--fix", "train.py")
    assert (folder / "train.py").read_text() == program
    assert result.exit_code == 1
    assert "FSDP204" in result.output and "FSDP201" not in result.output
    assert "fixable" not in result.output

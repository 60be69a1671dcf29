"""Comments that turn findings off: adding them, and finding those that turn nothing off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from command import BAD, FIXED, concise, run


def test_add_noqa(train: Path) -> None:
    result = run("--add-noqa", "train.py")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "Added 1 noqa comment.\n"
    assert train.read_text() == BAD.replace("comment\n", "comment  # noqa: FSDP101\n")
    assert run("train.py").output == "All checks passed.\n"
    assert run("--add-noqa", "train.py").stderr == "Added 0 noqa comments.\n"


def test_add_noqa_to_what_is_there_and_in_odd_places(train: Path) -> None:
    start = "loss = model.forward(torch.randn(2, 4)).sum()  # keep this comment"
    for new, expected in {
        "loss = model.forward(torch.randn(2, 4)).sum()  # noqa: E501": (
            "loss = model.forward(torch.randn(2, 4)).sum()  # noqa: E501, FSDP101"
        ),
        "loss = model.forward(torch.randn(2, 4)) \\\n    .sum()": (
            "loss = model.forward(torch.randn(2, 4)) \\\n    .sum()  # noqa: FSDP101"
        ),
        'loss = model.forward(torch.randn(2, 4)) + len("""\n""")': (
            'loss = model.forward(torch.randn(2, 4)) + len("""\n""")  # noqa: FSDP101'
        ),
        "loss = (\n    model.forward(  # why\n        torch.randn(2, 4)))": (
            "loss = (\n    model.forward(  # why  # noqa: FSDP101\n        torch.randn(2, 4)))"
        ),
    }.items():
        train.write_bytes(BAD.replace(start, new).replace("\n", "\r\n").encode())
        assert run("--add-noqa", "train.py").exit_code == 0
        expected = BAD.replace(start, expected).replace("\n", "\r\n")
        assert train.read_bytes().decode() == expected
        assert concise("train.py") == []


@pytest.mark.parametrize(
    "options",
    [
        ("--add-noqa", "--fix", "train.py"),
        ("--add-noqa", "--diff", "train.py"),
        ("--add-noqa", "-"),
        ("--watch", "-"),
        ("--baseline", "x", "--no-baseline", "train.py"),
    ],
)
def test_what_does_not_go_together(train: Path, options: Sequence[str]) -> None:
    result = run(*options, input=BAD)
    assert result.exit_code == 2
    assert "cannot be used with" in result.stderr
    assert train.read_text() == BAD


UNUSED = BAD.replace("loss.backward()", "loss.backward()  # noqa: E501, FSDP101")


def test_comments_that_turn_nothing_off(train: Path) -> None:
    train.write_text(UNUSED)
    result = run("--output-format", "concise", "train.py")
    assert "train.py:11:18: FSDP903 [*] `FSDP101` turns nothing off here\n" in result.output
    assert run("--fix", "train.py").exit_code == 0
    assert train.read_text() == FIXED.replace("backward()", "backward()  # noqa: E501")


HEAD, TAIL = BAD.split("loss = ")
TAIL = TAIL.partition("\n")[2]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1  # noqa: FSDP101\n", "x = 1\n"),
        ("x = 1  # noqa: FSDP101 for the hooks\n", "x = 1  # for the hooks\n"),
        ("x = 1  # fsdplint: ignore[FSDP101]  keep these words\n", "x = 1  # keep these words\n"),
        ("# fsdplint: ignore -- see #12\r\nx = 1\n", "# see #12\r\nx = 1\n"),
        ("x = 1  # fsdplint: ignore[FSDP101]: why  # noqa: E501\n", "x = 1  # why  # noqa: E501\n"),
        ("x = 1  # fsdplint: ignore[FSDP101] noqa: E501\n", "x = 1\n"),
        ("x = 1  # type: ignore  # noqa: FSDP101\n", "x = 1  # type: ignore\n"),
        ("x = 1  # noqa: FSDP101  # why\n", "x = 1  # why\n"),
        ("x = 1  # fsdplint: ignore\n", "x = 1\n"),
        ("# fsdplint: ignore[FSDP101]\nx = 1\n", "x = 1\n"),
        ("x = 1\\\n# fsdplint: ignore[FSDP101]\ny = 2\n", "x = 1\\\n\ny = 2\n"),
        ("# fsdplint: file-ignore[direct-forward-call]\n", ""),
        ("# fsdplint: file-ignore[FSDP101]\r\nx = 1\n", "x = 1\n"),
        ("# fsdplint: disable[FSDP1]\nx = 1\n# fsdplint: enable[FSDP1]\n", "x = 1\n"),
        ("# fsdplint: enable[FSDP1]\nx = 1\n", "x = 1\n"),
        # One of two is used.
        (
            "y = model.forward(x)  # fsdplint: ignore[FSDP103, FSDP101]\n",
            "y = model.forward(x)  # fsdplint: ignore[FSDP101]\n",
        ),
    ],
)
def test_what_is_left_of_them(train: Path, before: str, after: str) -> None:
    train.write_bytes((HEAD + before + TAIL).encode())
    assert all(line.endswith("FSDP903") for line in concise("train.py")) and concise("train.py")
    assert run("--fix", "train.py").exit_code == 0
    assert train.read_bytes().decode() == HEAD + after + TAIL


@pytest.mark.parametrize(
    "line",
    [
        "x = 1  # noqa",  # may be for another linter
        "x = 1  # noqa: E501",
        "x = 1  # noqa: FSDP701",  # needs a real run
        "x = 1  # fsdplint: ignore[FSDP7]",
        "x = 1  # fsdplint: ignore[nonsense]",  # there is a warning
        "x = 1  # fsdplint: ignore[FSDP101, FSDP903]",
        "y = model.forward(x)  # noqa",
        "y = model.forward(x)  # fsdplint: ignore",
        "# fsdplint: disable\ny = model.forward(x)\n# fsdplint: enable",
        '"""# fsdplint: ignore"""',
    ],
)
def test_comments_that_are_left_alone(train: Path, line: str) -> None:
    text = f"{HEAD}{line}\n{TAIL}"
    train.write_text(text)
    assert concise("train.py") == []
    assert run("--fix", "train.py").exit_code == 0
    assert train.read_text() == text


@pytest.mark.parametrize(
    "options", [("--select", "FSDP903"), ("--ignore", "FSDP101"), ("--ignore", "FSDP903")]
)
def test_a_comment_for_a_rule_that_is_off_is_left_alone(
    train: Path, options: tuple[str, str]
) -> None:
    train.write_text(UNUSED.replace("model.forward", "model"))
    assert concise(*options, "train.py") == []


def test_a_comment_may_be_there_for_what_only_other_files_show(folder: Path) -> None:
    wrap = "def wrap(model):\n    return model.forward(1)  # noqa: FSDP101\n# fsdp\n"
    (folder / "lib.py").write_text(wrap)
    (folder / "train.py").write_text(
        "from torch import nn\nfrom torch.distributed.fsdp import fully_shard\n"
        "from lib import wrap\nmodel = nn.Linear(2, 2)\nfully_shard(model)\nwrap(model)\n"
    )
    (folder / "pyproject.toml").write_text("")
    assert concise(".") == []
    assert concise("lib.py") == []  # what imports it was not given
    assert run("--fix", "lib.py").exit_code == 0
    assert (folder / "lib.py").read_text() == wrap
    whole = (folder / "train.py").read_text()
    (folder / "train.py").write_text(whole + "def f(:\n")  # cannot be read
    assert concise(".")[0].endswith("FSDP901") and "FSDP903" not in run(".").output
    (folder / "train.py").write_text("from lib import wrap\n")
    assert concise(".") == ["lib.py:2:FSDP903"]


def test_a_program_that_is_too_large_keeps_its_comments(
    train: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsdplint.interpreter import run as interpreter

    train.write_text(UNUSED.replace("model.forward", "model"))
    assert concise("train.py") == ["train.py:11:FSDP903"]
    monkeypatch.setattr(interpreter, "MAX_STEPS", 30)
    (line,) = concise("train.py")
    assert line.endswith("FSDP904")


def test_comments_of_settings_files(folder: Path) -> None:
    text = (
        "compute_environment: LOCAL_MACHINE  # noqa: FSDP220\ndistributed_type: FSDP\n"
        "fsdp_config:\n  fsdp_version: 2\n"
    )
    (folder / "config.yaml").write_text(text)
    assert concise("config.yaml") == ["config.yaml:1:FSDP903"]
    assert run("--fix", "config.yaml").exit_code == 0
    assert (folder / "config.yaml").read_text() == text.replace("  # noqa: FSDP220", "")


def test_proofs_are_of_fixes_of_the_program(train: Path, folder: Path) -> None:
    """Not of comments; and findings that are known are fixed for them."""
    from fsdplint.runtime.proof.program_pair import fixes_of

    train.write_text(UNUSED)
    (folder / "pyproject.toml").write_text('[tool.fsdplint]\nbaseline = "known.json"\n')
    assert run("baseline", ".").exit_code == 0
    changes = fixes_of(train, unsafe=False)
    assert [one.rule.code for one in changes.applied] == ["FSDP101"]
    ((_, new),) = changes.texts.values()
    assert new == UNUSED.replace("model.forward(", "model(")

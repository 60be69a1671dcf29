"""Settings and the selection of rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.config.command_line import CommandLine
from fsdplint.config.settings import Settings, SettingsError
from fsdplint.config.settings_files import read_settings
from fsdplint.config.settings_finder import SettingsFinder
from fsdplint.diagnostics.codes import Selection, UnknownRuleError, known_rules, resolve, split
from fsdplint.registry.rules import documented_rules


def settings(folder: Path, text: str, **command_line: object) -> Settings:
    (folder / "pyproject.toml").write_text("[tool.fsdplint]\n" + text)
    return SettingsFinder(CommandLine(**command_line)).of(folder / "train.py")  # type: ignore[arg-type]


def test_all_rules_are_known_without_importing_them() -> None:
    assert known_rules() == {rule.code: rule.name for rule in documented_rules()}


def test_everything_at_once(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        """
        select = ["FSDP1"]
        extend-select = ["FSDP4", "save-sharded-state"]
        ignore = ["FSDP103"]
        exclude = ["vendor/", "*_pb2.py"]
        target-torch = "2.6"
        checkpoint = "dcp"
        output-format = "concise"
        unsafe-fixes = true
        [tool.fsdplint.per-file-ignores]
        "tests/**" = ["FSDP101"]
        """,
    )
    file = tmp_path / "train.py"
    assert [found.enables(code, file) for code in ("FSDP101", "FSDP103", "FSDP401", "FSDP302")] == [
        True,
        False,
        True,
        False,
    ]
    assert found.enables("FSDP301", file)
    assert not found.enables("FSDP101", tmp_path / "tests" / "deep" / "a.py")
    assert found.enables("FSDP102", tmp_path / "tests" / "deep" / "a.py")
    assert found.excludes(tmp_path / "vendor", True)
    assert found.excludes(tmp_path / "a" / "x_pb2.py", False)
    assert not found.excludes(file, False)
    assert found.checkpoint == "dcp"
    assert (found.target_torch, found.output_format, found.unsafe_fixes) == ("2.6", "concise", True)


def test_the_nearest_file_wins_whole(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.fsdplint]\nignore = ["FSDP103"]\n')
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'fsdplint-user'\n")
    (inner / "pyproject.toml").write_text('[tool.fsdplint]\nignore = ["FSDP101"]\n')
    finder = SettingsFinder()
    between, within = finder.of(tmp_path / "a" / "x.py"), finder.of(inner / "y.py")
    assert not between.enables("FSDP103", tmp_path / "a" / "x.py")
    assert within.enables("FSDP103", inner / "y.py")
    assert not within.enables("FSDP101", inner / "y.py")


def test_without_settings_everything_is_on(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "pyproject.toml") is None
    found = SettingsFinder().of(tmp_path / "train.py")
    assert found.enables("FSDP101", tmp_path / "train.py")
    assert (found.output_format, found.checkpoint) == ("full", "full")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('selct = ["FSDP1"]', "unknown key 'selct' in [tool.fsdplint]; did you mean 'select'?"),
        ("colour = 1", "unknown key 'colour' in [tool.fsdplint]; known keys: select, "),
        ('select = "FSDP1"', "select: must be a list of strings, is 'FSDP1'"),
        ('ignore = ["FSDP1O3"]', "ignore: unknown rule 'FSDP1O3'; did you mean FSDP103?"),
        ("exclude = [1]", "exclude: must be a list of strings, is [1]"),
        ('exclude = ["a", "[z-a]"]', "exclude: '[z-a]' is not a pattern: bad character range z-a"),
        ('exclude = ["!"]', "exclude: '!' is not a pattern: "),
        (
            'per-file-ignores = {"[z-a].py" = ["FSDP1"]}',
            "per-file-ignores: '[z-a].py' is not a pattern: bad character range z-a",
        ),
        ('per-file-ignores = ["a"]', "per-file-ignores: must be a table of patterns"),
        ('per-file-ignores = {"a" = ["X"]}', "per-file-ignores: unknown rule 'X'"),
        ("target-torch = 2.6", 'target-torch: must be a version such as "2.6", is 2.6'),
        ('output-format = "xml"', "output-format: must be one of full, concise, grouped, json,"),
        ('checkpoint = "whole"', "checkpoint: must be one of full, dcp, is 'whole'"),
        ("checkpoint = true", "checkpoint: must be one of full, dcp, is True"),
        ("force-exclude = 1", "force-exclude: must be true or false, is 1"),
        ('unsafe-fixes = "yes"', "unsafe-fixes: must be true or false, is 'yes'"),
        ("select = [", "not a valid TOML file"),
    ],
)
def test_mistakes_name_the_file_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'pyproject.toml'}: ")
    assert message in str(caught.value)


def test_fsdplint_has_to_be_a_table(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nfsdplint = 1\n")
    with pytest.raises(SettingsError, match="must be a table"):
        SettingsFinder().of(tmp_path / "a.py")


def test_another_tools_broken_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("this is = not [toml")
    assert SettingsFinder().of(tmp_path / "a.py").root != tmp_path


def test_the_command_line_wins(tmp_path: Path) -> None:
    text = 'select = ["FSDP1"]\nignore = ["FSDP103"]\noutput-format = "json"\nunsafe-fixes = true\n'
    on = lambda found: [c for c in known_rules() if found.selection.has(c)]  # noqa: E731
    assert on(settings(tmp_path, text, select=("FSDP103",))) == ["FSDP103"]
    first = [c for c in known_rules() if c.startswith("FSDP1") and c != "FSDP103"]
    assert on(settings(tmp_path, text)) == first
    assert on(settings(tmp_path, text, ignore=("FSDP101",))) == [c for c in first if c != "FSDP101"]
    more = on(settings(tmp_path, text, extend_select=("FSDP401",), ignore=("FSDP102",)))
    assert more == [c for c in first if c != "FSDP102"] + ["FSDP401"]
    over = settings(tmp_path, text, output_format="concise", unsafe_fixes=False)
    assert (over.output_format, over.unsafe_fixes) == ("concise", False)


def test_unknown_rules_on_the_command_line() -> None:
    with pytest.raises(SettingsError, match="command line: unknown rule 'FSDP999'"):
        SettingsFinder(CommandLine(select=("FSDP999",)))
    with pytest.raises(SettingsError, match="did you mean optimizer-before-shard"):
        SettingsFinder(CommandLine(ignore=("optimiser-before-shard",)))


def test_selectors() -> None:
    assert resolve("all") == ""
    assert resolve("fsdp1") == "FSDP1"
    assert resolve("optimizer-before-shard") == "FSDP103"
    assert split(("FSDP1, FSDP2", "FSDP3")) == ("FSDP1", "FSDP2", "FSDP3")
    for wrong in ("", "E501", "FSDP1030", "optimizer"):
        with pytest.raises(UnknownRuleError):
            resolve(wrong)


@pytest.mark.parametrize("wrong", ["FSDP2x", "fsdp2XX", "FSDP2*", "FSDP2xx"])
def test_a_pattern_of_codes_is_their_beginning(wrong: str) -> None:
    with pytest.raises(UnknownRuleError, match=r"did you mean FSDP2\?"):
        resolve(wrong)


def test_the_longer_selector_decides() -> None:
    selection = Selection(("ALL", "FSDP103"), ("FSDP1",))
    assert selection.has("FSDP103")
    assert not selection.has("FSDP101")
    assert selection.has("FSDP401")
    assert not Selection(("FSDP103",), ("FSDP103",)).has("FSDP103")
    # Of two equal ones the ignore decides, and ALL is the shortest.
    assert not Selection(ignore=("ALL",)).has("FSDP103")
    assert Selection(("ALL", "FSDP1"), ("all",)).has("FSDP103")
    assert not Selection(("ALL", "FSDP1"), ("all",)).has("FSDP401")


def test_ignoring_all_is_the_same_in_the_file(tmp_path: Path) -> None:
    ignoring = settings(tmp_path, 'ignore = ["ALL"]')
    selecting = settings(tmp_path, 'select = ["FSDP103"]\nignore = ["ALL"]')
    given = settings(tmp_path, "", ignore=("ALL",))
    found = [[c for c in known_rules() if s.selection.has(c)] for s in (ignoring, selecting, given)]
    assert found == [[], ["FSDP103"], []]
    more = settings(tmp_path, 'ignore = ["ALL"]', extend_select=("FSDP1",)).selection
    assert more.has("FSDP101") and not more.has("FSDP401")


RUN = """
[tool.fsdplint.run]
nproc-per-node = 4
timeout = 30

[tool.fsdplint.run.arguments]
"train.py" = ["--config", "small.yaml"]
"examples/" = ["--epochs", "1"]
"""


def test_how_programs_are_run(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(RUN)
    settings = SettingsFinder().of(tmp_path / "train.py")
    assert settings.run.options == {"nproc-per-node": 4, "timeout": 30.0}
    assert settings.arguments_of(tmp_path / "train.py") == ("--config", "small.yaml")
    assert settings.arguments_of(tmp_path / "examples" / "one.py") == ("--epochs", "1")
    assert settings.arguments_of(tmp_path / "other.py") == ()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("run = 3", "run: must be a table, is 3"),
        ("run = { nproc = 3 }", "unknown key 'nproc'"),
        ("run = { step = 3 }", "did you mean 'steps'?"),
        ("run = { steps = 0 }", "steps must be a number from 1, is 0"),
        ("run = { steps = true }", "steps must be a number from 1, is True"),
        ("run = { seed = 1.5 }", "seed must be a whole number, is 1.5"),
        ("run = { timeout = 'x' }", "timeout must be a number of seconds from 1, is 'x'"),
        ("run = { device = 'tpu' }", "device must be one of auto, cpu, cuda, is 'tpu'"),
        ("run = { arguments = [] }", "arguments must be a table of patterns with lists"),
        ("run = { arguments = { a = 'b' } }", "arguments must have lists of strings, has 'b'"),
    ],
)
def test_wrong_settings_of_runs(tmp_path: Path, table: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.fsdplint]\n{table}\n")
    with pytest.raises(SettingsError) as error:
        SettingsFinder().of(tmp_path / "train.py")
    assert message in str(error.value)

"""The output formats."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from fsdplint.diagnostics.finding import Edit, Finding, Fix, Import, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.report import Result, write
from fsdplint.source.files import Problem
from fsdplint.source.source import Source
from fsdplint.trace import FixedSite, Guard, GuardKind, Location, Trace

TEXT = """\
import torch
def train(model, x):
\tif x:
\t\ty = model.forward(x)  # 訓練
\treturn y
"""


class Sample(Rule):
    """A sample is found.

    ## What it does
    Finds samples.

    ## Why is this bad?
    It fails with `Error: no. More`, which
    nobody reads. And more.
    """

    code = "FSDP100"
    name = "sample"
    severity = Severity.WARNING
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        return ()


def site(line: int, column: int, end_line: int, end_column: int, path: str = "a.py") -> FixedSite:
    return FixedSite(Location(path, line, column, end_line, end_column))


@pytest.fixture
def source() -> Source:
    return Source("a.py", TEXT)


@pytest.fixture
def finding() -> Finding:
    start = TEXT.index("model.forward")
    return Finding(
        rule=Sample,
        site=site(4, 7, 4, 23),
        message="`forward` is called",
        help="Call the module.",
        related=((site(2, 1, 2, 5), "defined here"), (site(9, 1, 9, 2, "b.py"), "sharded here")),
        configuration=(Guard(GuardKind.CONFIG, "args.fsdp", True, None),),
        fix=Fix(
            "Call the module",
            Safety.SAFE,
            (Edit("a.py", start, start + len("model.forward"), "model"),),
            imports=(("a.py", Import("torch.distributed", "checkpoint")),),
            group="g",
        ),
    )


def result_of(*findings: Finding, unsafe: bool = False, **more: Any) -> Result:
    safe = {id(f) for f in findings if f.fix and f.fix.safety is Safety.SAFE}
    every = {id(f) for f in findings if f.fix}
    return Result(findings, fixable=every if unsafe else safe, fixable_unsafe=every, **more)


def lines(result: Result, output_format: str) -> list[str]:
    return list(write(result, output_format))


def test_full(source: Source, finding: Finding) -> None:
    finding.blocker = "the policy is not known"
    result = result_of(finding, sources={"a.py": source})
    assert lines(result, "full") == [
        "a.py:4:7: FSDP100 [*] `forward` is called (sample)",
        "  |",
        "3 |     if x:",
        "4 |         y = model.forward(x)  # 訓練",
        "  |             ^^^^^^^^^^^^^^^^",
        "5 |     return y",
        "  |",
        "  = note: defined here (line 2)",
        "  = note: sharded here (b.py:9)",
        "  = only: when `args.fsdp` is true",
        "  = why: It fails with `Error: no. More`, which nobody reads.",
        "  = help: Call the module.",
        "  = blocks: the policy is not known",
        "  = fix: Call the module",
        "",
        "Found 1 warning.",
        "[*] 1 fixable with --fix.",
    ]


def test_files_that_were_not_given_are_named(source: Source, finding: Finding) -> None:
    result = Result([finding], sources={"a.py": source}, outside={id(finding): ["b.py", "c.py"]})
    shown = lines(result, "full")
    assert "[*]" not in "".join(shown)
    assert (
        "  = note: the fix also changes b.py, c.py: name these files as well, or use --project"
        in shown
    )


def test_a_path_does_not_break_a_line() -> None:
    path = "a\nb\r\u2028c.py"
    finding = Finding(Sample, site(1, 2, 1, 3, path), "bad")
    result = Result([finding], problems=[Problem(path, 3, "no Python", "")])
    shown = r"a\nb\r\u2028c.py"
    assert lines(result, "concise")[:2] == [
        f"{shown}:3: FSDP901 no Python",
        f"{shown}:1:2: FSDP100 bad",
    ]
    assert lines(result, "pylint") == [
        f"{shown}:3: [FSDP901] no Python",
        f"{shown}:1: [FSDP100] bad",
    ]
    assert lines(result, "full")[0] == f"{shown}:3: FSDP901 no Python"
    assert any(line.startswith(f"{shown}:1:2: FSDP100") for line in lines(result, "full"))


def test_full_without_source(finding: Finding) -> None:
    shown = lines(result_of(finding), "full")
    assert shown[0].startswith("a.py:4:7: ")
    assert shown[1] == "  = note: defined here (line 2)"


def test_colour_only_where_it_is_shown(source: Source, finding: Finding) -> None:
    plain = result_of(finding, sources={"a.py": source})
    assert "\x1b" not in "".join(lines(plain, "full"))
    plain.colour = True
    coloured = "\n".join(lines(plain, "full"))
    assert "\x1b[1;33mFSDP100\x1b[0m" in coloured
    assert "\x1b[33m             ^^^^^^^^^^^^^^^^\x1b[0m" in coloured


def test_control_characters_of_the_source_do_not_reach_the_terminal() -> None:
    text = "x = '\x1b[31m\u202e'; f(1)\n"
    column = text.index("f(") + 1
    finding = Finding(Sample, site(1, column, 1, column + 4), "bad")
    shown = lines(result_of(finding, sources={"a.py": Source("a.py", text)}), "full")
    assert shown[2] == "1 | x = '\ufffd[31m\ufffd'; f(1)"
    assert shown[3] == "  |" + " " * 15 + "^^^^"


def test_wide_characters_before_the_span() -> None:
    text = "x = '訓練'; f(1)\n"
    finding = Finding(Sample, site(1, 11, 1, 15), "bad")
    shown = lines(result_of(finding, sources={"a.py": Source("a.py", text)}), "full")
    assert shown[3] == "  |" + " " * 13 + "^^^^"


def test_long_spans_are_shortened() -> None:
    text = "f(\n" + "".join(f"    {n},\n" for n in range(2, 12)) + ")\n"
    finding = Finding(Sample, site(1, 1, 12, 2), "bad")
    shown = lines(result_of(finding, sources={"a.py": Source("a.py", text)}), "full")
    assert shown[1:9] == [
        "   |",
        " 1 | f(",
        "   | ^^",
        " 2 |     2,",
        "   |     ^^",
        ".. |",
        "12 | )",
        "   | ^",
    ]


def test_concise(source: Source, finding: Finding) -> None:
    result = result_of(finding, sources={"a.py": source})
    assert lines(result, "concise") == [
        "a.py:4:7: FSDP100 [*] `forward` is called [only when `args.fsdp` is true]",
        "Found 1 warning.",
        "[*] 1 fixable with --fix.",
    ]


def test_of_many_conditions_the_innermost_are_shown(finding: Finding) -> None:
    finding.configuration = tuple(
        Guard(GuardKind.CONFIG, f"args.{name}", True, None) for name in "abcdef"
    )
    (shown, *_) = lines(result_of(finding), "concise")
    assert shown.endswith(
        "[only when `args.c` is true and `args.d` is true and `args.e` is true and "
        "`args.f` is true and 2 more conditions hold]"
    )
    assert len(json.loads("".join(lines(result_of(finding), "json")))[0]["configuration"]) == 6


def test_a_blocker_is_not_said_twice(finding: Finding) -> None:
    finding.blocker = "why"
    finding.help = "Not migrated: why."
    assert not any("= blocks" in line for line in lines(result_of(finding), "full"))


def test_json(source: Source, finding: Finding) -> None:
    problem = Problem("b.py", 3, "syntax error", "mend it")
    result = result_of(finding, problems=[problem], sources={"a.py": source})
    first, second = json.loads("\n".join(lines(result, "json")))
    assert (first["code"], first["filename"], first["location"]) == (
        "FSDP901",
        "b.py",
        {"row": 3, "column": 1},
    )
    assert first.keys() == second.keys()
    edits = second["fix"].pop("edits")
    assert second == {
        "code": "FSDP100",
        "name": "sample",
        "severity": "warning",
        "message": "`forward` is called",
        "why": "It fails with `Error: no. More`, which nobody reads.",
        "help": "Call the module.",
        "filename": "a.py",
        "location": {"row": 4, "column": 7},
        "end_location": {"row": 4, "column": 23},
        "configuration": [{"condition": "args.fsdp", "holds": True}],
        "related": [
            {"message": "defined here", "filename": "a.py", "location": {"row": 2, "column": 1}},
            {"message": "sharded here", "filename": "b.py", "location": {"row": 9, "column": 1}},
        ],
        "group": "g",
        "blocker": None,
        "blocker_codes": [],
        "fix": {"safety": "safe", "title": "Call the module", "group": "g", "notes": []},
        "url": "https://fsdplint.readthedocs.io/rules/sample",
    }
    # Whoever applies the edits gets the import as well.
    changed = TEXT
    for edit in sorted(edits, key=lambda e: -offset(e["location"])):
        assert edit["filename"] == "a.py"
        start, end = offset(edit["location"]), offset(edit["end_location"])
        changed = changed[:start] + edit["content"] + changed[end:]
    assert "y = model(x)" in changed
    assert "from torch.distributed import checkpoint" in changed


def offset(place: dict[str, int]) -> int:
    starts = [0]
    for line in TEXT.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts[place["row"] - 1] + place["column"] - 1


def test_json_of_nothing_is_an_empty_list() -> None:
    assert json.loads("".join(lines(Result(), "json"))) == []


def test_problems() -> None:
    result = Result(
        problems=[Problem("b.py", 3, "syntax error", "mend it"), Problem("c", None, "x")]
    )
    for output_format in ("full", "concise"):
        shown = lines(result, output_format)
        assert shown[:2] == ["b.py:3: FSDP901 syntax error (mend it)", "c: FSDP901 x"]
        assert shown[-1] == "2 problems kept files from being checked."


@pytest.mark.parametrize(
    ("safeties", "unsafe", "fixed", "expected"),
    [
        ([], False, 0, ["All checks passed."]),
        ([], False, 2, ["Fixed 2 findings; none remains."]),
        ([None], False, 1, ["Found 1 warning (1 fixed before)."]),
        (["safe", "unsafe"], False, 0, "[*] 1 fixable with --fix (1 more with --unsafe-fixes)."),
        (["unsafe"], False, 0, "1 fixable with --fix --unsafe-fixes."),
        (["safe", "unsafe"], True, 0, "[*] 2 fixable with --fix."),
    ],
)
def test_summary(
    safeties: list[str | None], unsafe: bool, fixed: int, expected: list[str] | str
) -> None:
    findings = [
        Finding(
            Sample, site(1, 1, 1, 2), "bad", fix=Fix("Mend", Safety(safety), ()) if safety else None
        )
        for safety in safeties
    ]
    shown = lines(result_of(*findings, unsafe=unsafe, fixed=fixed), "concise")[len(findings) :]
    assert shown == expected if isinstance(expected, list) else shown[-1] == expected


def test_severities_are_counted_apart() -> None:
    class Worse(Sample):
        severity = Severity.ERROR

    class Milder(Sample):
        severity = Severity.INFO

    findings = [Finding(rule, site(1, 1, 1, 2), "bad") for rule in (Worse, Worse, Sample, Milder)]
    assert lines(result_of(*findings), "concise")[-1] == "Found 2 errors, 1 warning and 1 note."

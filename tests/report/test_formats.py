"""The formats that other tools read, against what their specifications say.

The file is oddly named, its line begins with characters of one, two and four bytes in UTF-8, the
message has two lines and what the formats escape, and the fix changes two files.
"""

from __future__ import annotations

import json
import pkgutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import junitparser
import pytest
from samples import MESSAGE, NAME, URL, Sample, data_of, site, text_of

from fsdplint.config.options import FORMATS
from fsdplint.diagnostics.finding import Finding
from fsdplint.report import Result, formats, write, writer


@pytest.mark.parametrize("output_format", FORMATS)
def test_every_format_writes_something_and_nothing(result: Result, output_format: str) -> None:
    assert "FSDP200" in text_of(result, output_format)
    assert "FSDP" not in text_of(Result(), output_format)


def test_json_lines(result: Result) -> None:
    lines = list(write(result, "json-lines"))
    assert [json.loads(line) for line in lines] == data_of(result, "json")
    assert all("\n" not in line for line in lines)


def test_grouped(result: Result) -> None:
    assert list(write(result, "grouped")) == [
        "broken.py:",
        "  1:1 FSDP901 syntax error",
        "",
        f"{NAME}:",
        "  2:6 FSDP100 [*] 100% wrong, really: <b> & ] [only when `args.fsdp` is true]",
        "  2:6 FSDP200 [*] worse",
        "  1:1 FSDP300 mild",
        "",
        "Found 1 error, 1 warning and 1 note.",
        "1 problem kept files from being checked.",
        "[*] 2 fixable with --fix (1 more with --unsafe-fixes).",
    ]


def test_pylint(result: Result) -> None:
    assert list(write(result, "pylint")) == [
        "broken.py:1: [FSDP901] syntax error",
        f"{NAME}:2: [FSDP100] 100% wrong, really: <b> & ] [only when `args.fsdp` is true]",
        f"{NAME}:2: [FSDP200] worse",
        f"{NAME}:1: [FSDP300] mild",
    ]


def test_github(result: Result, folder: Path) -> None:
    # In properties `%`, line ends, `:` and `,` are escaped, in the message `%` and line ends;
    # columns are not allowed where the annotation runs over several lines.
    where = f"{folder}/my pkg/ü%2C%3A;]%25.py"
    assert list(write(result, "github")) == [
        f"::error title=fsdplint (FSDP901),file={folder}/broken.py,line=1,col=1,endLine=1,"
        "endColumn=1::broken.py:1:1: FSDP901 syntax error%0A  help: mend it",
        f"::warning title=fsdplint (FSDP100),file={where},line=2,col=6,endLine=2,endColumn=22::"
        "my pkg/ü,:;]%25.py:2:6: FSDP100 100%25 wrong,%0Areally: <b> & ] "
        "[only when `args.fsdp` is true]%0A  help: Call the module.",
        f"::error title=fsdplint (FSDP200),file={where},line=2,col=6,endLine=2,endColumn=22::"
        "my pkg/ü,:;]%25.py:2:6: FSDP200 worse",
        f"::notice title=fsdplint (FSDP300),file={where},line=1,endLine=2::"
        "my pkg/ü,:;]%25.py:1:1: FSDP300 mild",
    ]


def test_azure(result: Result, folder: Path) -> None:
    # Issues are errors or warnings. `%` is %AZP25; `]` and `;` would end a property.
    where = f"{folder}/my pkg/ü,:%3B%5D%AZP25.py"
    task = "##vso[task.logissue type"
    assert list(write(result, "azure")) == [
        f"{task}=error;sourcepath={folder}/broken.py;linenumber=1;columnnumber=1;code=FSDP901;]"
        "syntax error",
        f"{task}=warning;sourcepath={where};linenumber=2;columnnumber=6;code=FSDP100;]"
        "100%AZP25 wrong,%0Areally: <b> & ] [only when `args.fsdp` is true]",
        f"{task}=error;sourcepath={where};linenumber=2;columnnumber=6;code=FSDP200;]worse",
        f"{task}=warning;sourcepath={where};linenumber=1;columnnumber=1;code=FSDP300;]mild",
    ]


def test_of_nothing_lines_of_commands_are_none() -> None:
    for output_format in ("github", "azure", "pylint", "json-lines"):
        assert list(write(Result(), output_format)) == []


# JUnit ------------------------------------------------------------------------------------------


def test_junit(result: Result) -> None:
    root = ElementTree.fromstring(text_of(result, "junit").encode())
    assert (root.tag, root.attrib) == (
        "testsuites",
        {"name": "fsdplint", "tests": "4", "failures": "3", "errors": "1"},
    )
    broken, odd = root
    assert broken.attrib == {"name": "broken.py", "tests": "1", "failures": "0", "errors": "1"}
    assert [child.tag for child in broken[0]] == ["error"]
    assert odd.attrib == {"name": NAME, "tests": "3", "failures": "3", "errors": "0"}
    case = odd[0]
    assert case.attrib == {
        "name": "FSDP100 sample",
        "classname": NAME.removesuffix(".py"),
        "file": NAME,
        "line": "2",
    }
    (failure,) = case
    assert failure.tag == "failure"
    condition = "[only when `args.fsdp` is true]"
    assert failure.attrib == {
        "message": f"100% wrong, really: <b> & ] {condition}",
        "type": "warning",
    }
    assert failure.text == f"{NAME}:2:6: {MESSAGE} {condition}\nCall the module.\n{URL}"


def test_junit_as_another_reader_sees_it(result: Result) -> None:
    read = junitparser.JUnitXml.fromstring(text_of(result, "junit").encode())
    assert (read.tests, read.failures, read.errors) == (4, 3, 1)
    assert [suite.name for suite in read] == ["broken.py", NAME]
    kinds = [type(one).__name__ for suite in read for case in suite for one in case.result]
    assert kinds == ["Error", "Failure", "Failure", "Failure"]
    (clean,) = junitparser.JUnitXml.fromstring(text_of(Result(), "junit").encode())
    assert (clean.tests, clean.failures) == (1, 0)
    assert all(case.is_passed for case in clean)


def test_junit_without_what_xml_cannot_say() -> None:
    finding = Finding(Sample, site(1, 1, 1, 2, "a\udcff.py"), "bell \x07, \x1b[31m, \ufffe")
    root = ElementTree.fromstring(text_of(Result([finding]), "junit").encode())
    assert root[0].get("name") == "a\ufffd.py"
    assert root[0][0][0].get("message") == "bell \ufffd, \ufffd[31m, \ufffd"


# GitLab -----------------------------------------------------------------------------------------


# Reviewdog --------------------------------------------------------------------------------------


# SARIF ------------------------------------------------------------------------------------------


def test_a_format_is_a_module() -> None:
    modules = pkgutil.iter_modules(formats.__path__)
    assert {module.name.replace("_", "-") for module in modules} == set(FORMATS)
    for_people = [name for name in FORMATS if writer(name).FOR_PEOPLE]
    assert for_people == ["full", "concise", "grouped", "markdown"]
    with_statistics = [name for name in FORMATS if writer(name).HAS_STATISTICS]
    assert with_statistics == ["full", "concise", "json", "json-full"]

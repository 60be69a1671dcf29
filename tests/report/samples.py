"""Rules and places of findings that the formats are tested with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.report import Result, write
from fsdplint.trace import FixedSite, Location, Trace

NAME = "my pkg/ü,:;]%.py"
TEXT = "import torch\n\u00e9\U00010400 = model.forward(x)\n"
OTHER = "def train(model):\n    model.clip()\n"
MESSAGE = "100% wrong,\nreally: <b> & ]"
URL = "https://fsdplint.readthedocs.io/rules/sample"


class Sample(Rule):
    """A sample is found.

    ## What it does
    Finds samples.

    ## Why is this bad?
    It fails with `Error`, which
    nobody reads.
    """

    code = "FSDP100"
    name = "sample"
    severity = Severity.WARNING
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        return ()


class Worse(Sample):
    """Another is found."""

    code = "FSDP200"
    name = "worse"
    severity = Severity.ERROR


class Milder(Sample):
    """A third is found."""

    code = "FSDP300"
    name = "milder"
    severity = Severity.INFO


def site(line: int, column: int, end_line: int, end_column: int, path: str = NAME) -> FixedSite:
    return FixedSite(Location(path, line, column, end_line, end_column))


def text_of(result: Result, output_format: str) -> str:
    return "\n".join(write(result, output_format))


def data_of(result: Result, output_format: str) -> Any:
    return json.loads(text_of(result, output_format))

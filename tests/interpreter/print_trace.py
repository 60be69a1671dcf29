"""Print the events that the interpreter finds in programs, one a line.

    python tests/interpreter/print_trace.py fixtures/rules/FSDP103/stale_list.bad.py

A line has the index of the event, its line in the file, its class, and the fields that differ from
their defaults. `Escaped` names what the interpreter could not follow. Each configuration of a
program is a trace of its own; `--all` prints every one, otherwise only the first is printed.
"""

from __future__ import annotations

import argparse
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path

from fsdplint.interpreter import load
from fsdplint.trace import Event, Trace

HIDDEN = {"site", "index", "stack"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--all", action="store_true", help="print the traces of all configurations")
    options = parser.parse_args()
    traces = load(options.files).traces
    for number, trace in enumerate(traces if options.all else traces[:1], 1):
        print(f"trace {number} of {len(traces)}")
        print_trace(trace)


def print_trace(trace: Trace) -> None:
    for event in trace:
        at = event.site.location()
        print(f"{event.index:4} {at.line:5}  {type(event).__name__:20} {values(event)}")


def values(event: Event) -> str:
    """The fields that say more than their defaults."""
    found = []
    for field in fields(event):
        value = getattr(event, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if field.name not in HIDDEN and value != default:
            value = value.name if isinstance(value, Enum) else value
            value = "; ".join(map(str, value)) if field.name == "guards" else value
            found.append(f"{field.name}={value}")
    return " ".join(found)


if __name__ == "__main__":
    main()

"""Digests of what the interpreter finds out, to compare two states of its code.

    python tests/interpreter/trace_digests.py [FILE ...] > before.tsv
    python tests/interpreter/trace_digests.py --text fixtures/fsdp1/apply.py

There is one line for each program: the files of `fixtures/`, the examples of the rules among them,
and the files given. A digest covers the steps of the run, every trace (each event with all of its fields,
the modules) and the values of every evaluated node with all that they refer to. Objects are
numbered in the order in which they are met, and a node is named by its position in its file's tree,
so that equal behaviour gives equal digests in every process. The fields of a value count by their
order, not by their names: a field may be renamed. `--text` prints what the digest of one program is
made of.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import libcst as cst

from fsdplint.config.options import DEFAULT
from fsdplint.interpreter.exploration import ProgramLoader
from fsdplint.interpreter.program import Program
from fsdplint.source.nesting import deep_stack
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import Trace
from fsdplint.trace.certainty import Certainty

REPOSITORY = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--text", metavar="PROGRAM")
    arguments = parser.parse_args()
    files = [path.absolute() for path in arguments.files]
    for name, home, file in [*fixtures(), *given(files)]:
        if arguments.text not in (None, name):
            continue
        os.chdir(home)
        lines = deep_stack(lambda file=file: list(description(Path(file))))
        if arguments.text is not None:
            print(*lines, sep="\n")
            continue
        digest = hashlib.sha256("\n".join(lines).encode("utf-8", "replace")).hexdigest()
        print(name, digest[:24], len(lines), sep="\t", flush=True)


# Programs ----------------------------------------------------------------------------------------


def fixtures() -> Iterator[tuple[str, Path, str]]:
    for path in sorted((REPOSITORY / "fixtures").rglob("*.py")):
        file = path.relative_to(REPOSITORY).as_posix()
        yield file, REPOSITORY, file


def given(files: list[Path]) -> Iterator[tuple[str, Path, str]]:
    for path in files:
        yield str(path), path.parent, path.name


# What a digest is made of ------------------------------------------------------------------------


def description(file: Path) -> Iterator[str]:
    """All that is known of a program, line by line."""
    loader = ProgramLoader([file])
    program = loader.run()
    writer = Writer(program)
    yield f"steps {loader.steps}"
    yield f"problems {[(problem.code, problem.message) for problem in program.problems]}"
    yield f"files {sorted(program.sources)} {sorted(program.configs)}"
    for cut in program.cuts.values():
        yield f"cut {writer.term(cut)}"
    for number, trace in enumerate(program.traces):
        yield f"trace {number} {trace.complete} {trace.entry}"
        yield from (f"module {writer.term(module)}" for module in trace.modules.values())
        for event in trace.events:
            parts = (f"{name}={writer.term(value)}" for name, value in vars(event).items())
            yield f"event {type(event).__name__} {' '.join(parts)}"
    for node in program.evaluations:
        yield f"node {writer.term(node)}: {[writer.term(one) for one in program.values(node)]}"
    yield from writer.objects()


class Writer:
    """Writes values as terms that are the same in every process."""

    def __init__(self, program: Program) -> None:
        self._nodes = {
            id(node): f"{source.path}#{number}"
            for source in program.sources.values()
            for number, node in enumerate(source.descend(source.tree))
        }
        self._numbers: dict[int, int] = {}
        self._waiting: deque[Any] = deque()
        self._alive: list[Any] = []  # so that no id is used twice

    def term(self, value: object) -> str:
        if isinstance(value, list | tuple):
            return f"[{', '.join(self.term(item) for item in value)}]"
        if isinstance(value, set | frozenset):
            return f"{{{', '.join(sorted(self.term(item) for item in value))}}}"
        if isinstance(value, dict):
            items = (f"{self.term(key)}: {self.term(item)}" for key, item in value.items())
            return f"{{{', '.join(items)}}}"
        if isinstance(value, Enum):
            return str(value)
        if isinstance(value, cst.CSTNode):
            return self._nodes.get(id(value)) or f"{type(value).__name__} of no file"
        if isinstance(value, NodeSite):
            return f"@{self.term(value.node)}"
        if isinstance(value, Source):
            return f"file {value.path}"
        if isinstance(value, Trace | Certainty) or value is DEFAULT:
            return type(value).__name__
        if is_dataclass(value) and not isinstance(value, type):
            return self._reference(value)
        if callable(value):
            return "a function"
        return repr(value)

    def _reference(self, value: object) -> str:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._numbers)
            self._alive.append(value)
            self._waiting.append(value)
        return f"{type(value).__name__}-{self._numbers[id(value)]}"

    def objects(self) -> Iterator[str]:
        """The objects that terms refer to, and those that these refer to."""
        while self._waiting:
            value = self._waiting.popleft()
            terms = ", ".join(self.term(getattr(value, one.name)) for one in fields(value))
            yield f"object {self._reference(value)}({terms})"


if __name__ == "__main__":
    main()

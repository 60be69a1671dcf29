"""Whether values, and what the program's own code computes, are the same on every rank.

Only certain facts count. The code of a dataset runs for each sample, in worker processes too, so it
is not executed here. It is judged by what it reads: the values of the names that its scope
binds, the code that these lead to, and the words of everything else. A word that may mean the rank
or a random number leaves the answer open, so words can hide a finding but cannot make one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import libcst as cst

from fsdplint.interpreter.random_functions import may_be_random
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import GeneratorValue, StateValue
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    LibraryObject,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.source.positions import code_children
from fsdplint.syntax.words import words_of
from fsdplint.trace import Loaded, Ranks

# Libraries whose functions return the same on every rank for the same arguments.
_LIBRARIES = {
    "torch", "torchvision", "transformers", "numpy", "pandas", "PIL", "pyarrow", "h5py", "polars",
    "tokenizers", "tiktoken", "sentencepiece", "cv2", "soundfile", "datasets",
    "os", "json", "pathlib", "builtins", "argparse", "csv", "pickle", "glob", "math", "re",
    "typing", "dataclasses", "collections", "functools", "itertools", "operator", "copy", "abc",
    "io", "gzip", "string", "struct", "bisect", "logging", "warnings", "enum",
    "yaml", "omegaconf", "tomllib", "tomli",
}  # fmt: skip
_BY_RANK = re.compile(
    r"rank|world|\bdist\b|distributed|shard|worker|partition|environ|getenv|getpid|replica|host"
    r"|process|current_device",
    re.I,
)
# The workers of a loader split the data of one rank; each rank has workers with these numbers.
_WORKER_INFO = "torch.utils.data.get_worker_info"
_OF_WORKERS = re.compile(
    r"\b(?:get_worker_info|(?:num_|n_|per_)?workers?(?:_info|_id|_idx|_index|_num)?)\b"
)
_RANDOM_CODE = re.compile(
    r"rand|normal_?\(|choices?\(|\bsample\(|sampler|shuffle|seed|\btime\b|uuid|bernoulli|multinomial",
    re.I,
)
_MAX_DEPTH = 6  # of values in values, and of code that code uses
Code = Function | Class


def is_rank_invariant(run: Run, value: Value) -> bool:
    """Whether a value is the same on all ranks, and does the same if it is called."""
    return _Invariance(run).of_value(value)


def is_code_invariant(
    run: Run, code: Code, *, may_draw: bool = False, fixed: Collection[str] = ()
) -> bool:
    """Whether the code of a function, or of a class and its bases, does the same on all ranks.

    The `__init__` of a class may draw random numbers from torch if all ranks have set a seed.
    may_draw: whether all of the code may draw random numbers, of whatever seeds.
    fixed: attributes that have the same value on all ranks, such as a `rank` that nobody passes.
    """
    return _Invariance(run, may_draw, fixed).of_code(code)


class _Invariance:
    """The question for one value or one piece of code, and for all that it uses."""

    def __init__(self, run: Run, may_draw: bool = False, fixed: Collection[str] = ()) -> None:
        self._run = run
        self._may_draw = may_draw
        self._fixed = frozenset(fixed)
        self._seen: set[Code] = set()

    def of_value(self, value: Value, depth: int = 0) -> bool:
        value = self._run.settle(value)
        if depth > _MAX_DEPTH:
            return False
        if isinstance(value, Const):
            return True
        if isinstance(value, Function | Class):
            return self.of_code(value, depth + 1)
        if isinstance(value, Symbol):
            return _is_invariant_library(value.name)
        if isinstance(value, StateValue):
            return is_same_file(self._run, value)
        if isinstance(value, Unknown):
            return self._of_unknown(value)
        if isinstance(value, GeneratorValue):
            return value.seed is not None and self.of_value(value.seed, depth + 1)
        parts = _parts(value)
        return parts is not None and all(self.of_value(one, depth + 1) for one in parts)

    def _of_unknown(self, value: Unknown) -> bool:
        if value.part_of is not None or value.by_rank or value.by_process:
            return False
        if "parse_args()" in value.origin:
            return True
        if value.origin in self._run.setting_fields:
            return not _BY_RANK.search(value.origin)
        if not _is_invariant_library(value.library):
            return False
        if may_be_random(value.library):
            return value.library.startswith("torch.") and self._run.seeded is True
        return True

    def of_code(self, code: Code, depth: int = 0) -> bool:
        if code in self._seen:
            return True
        if depth > _MAX_DEPTH:
            return False
        self._seen.add(code)
        for one in code.mro() if isinstance(code, Class) else (code,):
            words = words_of(one.node)
            if self._fixed and depth == 0:
                words = " ".join(word for word in words.split(" ") if word not in self._fixed)
            if "get_worker_info(" in words:
                words = _OF_WORKERS.sub("", words)
            if _BY_RANK.search(words):
                return False
            if not self._may_draw and not _draws_alike(self._run, one, depth):
                return False
            read = (one.scope.lookup(name) for name in _names(one.node))
            if not all(self.of_value(value, depth + 1) for value in read if value is not None):
                return False
        return True


def _parts(value: Value) -> list[Value] | None:
    """The values that decide what another value is and does; None if some are unknown."""
    if isinstance(value, Sequence):
        return list(value.items)
    if isinstance(value, Dict):
        return list(value.items.values())
    if isinstance(value, LibraryObject):
        return list(value.args.values())
    if isinstance(value, Partial):
        return [value.function, *value.args, *value.kwargs.values()]
    if isinstance(value, Bound):
        return [value.function, value.receiver]
    if not isinstance(value, Instance) or value.attributes_unknown:
        return None
    if value.cls.has_unknown_base() or value.cls.library_bases():
        return None
    return [value.cls, *value.attributes.values()]


def is_same_file(run: Run, value: StateValue) -> bool:
    """Whether all ranks have read the same file by `torch.load`."""
    return value.api == "torch.load" and any(
        event.state == value.id and not event.per_rank and event.ranks is Ranks.ALL
        for event in run.trace.of(Loaded)
    )


def _is_invariant_library(name: str) -> bool:
    """Whether the dotted name of a library's function, which no rank is in, is known."""
    if name == _WORKER_INFO:
        return True
    return name.partition(".")[0] in _LIBRARIES and not _BY_RANK.search(name)


def _draws_alike(run: Run, code: Code, depth: int) -> bool:
    """Whether code draws no random numbers, or draws them from torch after the seed is set."""
    if isinstance(code, Function):
        return not _RANDOM_CODE.search(words_of(code.node))
    for part in code.node.body.body:
        if not _RANDOM_CODE.search(words_of(part)):
            continue
        if depth or not isinstance(part, cst.FunctionDef) or part.name.value != "__init__":
            return False
        if not run.seeded or not _calls_torch_only(code, part):
            return False
    return True


def _calls_torch_only(code: Class, node: cst.CSTNode) -> bool:
    """Whether torch is the only library in some code: its seed does not set those of others."""
    values = [code.scope.lookup(name) for name in _names(node)]
    return all(
        value.name.partition(".")[0] in ("torch", "builtins")
        for value in values
        if isinstance(value, Symbol)
    )


def _names(node: cst.CSTNode) -> Iterator[str]:
    """The names in some code, without those of attributes and arguments."""
    if isinstance(node, cst.Name):
        yield node.value
    elif isinstance(node, cst.Attribute):
        yield from _names(node.value)
    elif isinstance(node, cst.Arg):
        yield from _names(node.value)
    else:
        for child in code_children(node):
            yield from _names(child)

"""Versions of installed packages, and the functions of libraries that test torch's."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_version import PARSERS, compare_with_installed
from fsdplint.interpreter.values import Condition, LibraryObject, Unknown, Value, constant


@function(*PARSERS)
def parsed_version(run: Run, name: str, call: Call) -> Value:
    return LibraryObject(name, {"0": run.settle(call.args[0])} if call.args else {}, call.open)


@function("accelerate.utils.is_torch_version", "accelerate.utils.versions.is_torch_version",
          "diffusers.utils.is_torch_version",
          "diffusers.utils.import_utils.is_torch_version")  # fmt: skip
def is_torch_version(run: Run, name: str, call: Call) -> Value:
    op = constant(call.arg(0, "operation"))
    return _answer(run, call, op, call.arg(1, "version"))


@function("transformers.utils.is_torch_greater_or_equal",
          "transformers.utils.import_utils.is_torch_greater_or_equal")  # fmt: skip
def is_torch_greater_or_equal(run: Run, name: str, call: Call) -> Value:
    return _answer(run, call, ">=", call.arg(0, "library_version"))


def _answer(run: Run, call: Call, op: object, version: Value | None) -> Value:
    known = (
        compare_with_installed(op, run.settle(version))
        if isinstance(op, str) and version is not None
        else None
    )
    text = run.text(call.node)
    return Unknown(origin=text) if known is None else Condition(text, text, with_fsdp2=known)

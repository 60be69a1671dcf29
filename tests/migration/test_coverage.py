"""Every name of FSDP1 stands in some fixture: what torch offers is the list, not what we thought of.

The table in `fixtures/README.md` is made of it: `UPDATE_DOCS=1 pytest` writes it.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import fixture_runs
import torch.distributed.fsdp as fsdp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import wrap

from fsdplint.migration.names import FSDP2

README = fixture_runs.FIXTURES / "README.md"
START, END = "<!-- symbols -->\n", "<!-- /symbols -->\n"
CLASS = "FullyShardedDataParallel"
FOLDERS = (*fixture_runs.FOLDERS, "fsdp1_blocked")

# What belongs to FSDP1 without being a public name of its package.
BESIDE = (
    "ShardedGradScaler",
    "_or_policy",
    "_module_wrap_policy",
    "_fsdp_wrapped_module",
    "_composable.fsdp",
    "save_state_dict",
    "load_state_dict",
    "load_sharded_optimizer_state_dict",
    "apply_activation_checkpointing",
    "checkpoint_wrapper",
    "CheckpointImpl",
    "offload_wrapper",
)


def rows() -> list[str]:
    """Names, `Class(argument=)`, and `Class.member` for methods and the values of enums."""
    public = [name for name in fsdp.__all__ if name not in FSDP2]
    found = [*public, *(name for name in wrap.__all__ if name not in public), *BESIDE]
    arguments = list(inspect.signature(FSDP.__init__).parameters)[2:]
    found += [f"{CLASS}({name}=)" for name in arguments]
    found += [f"{CLASS}.{name}" for name in vars(FSDP) if not name.startswith("_")]
    for name in public:
        value = getattr(fsdp, name)
        if isinstance(value, type) and issubclass(value, enum.Enum):
            found += [f"{name}.{member}" for member in value.__members__]
        elif dataclasses.is_dataclass(value):
            fields = [field.name for field in dataclasses.fields(value)]
            if name == "MixedPrecision":
                found += [f"{name}({field}=)" for field in fields]
    return found


def mentioned(path: Path) -> set[str]:
    """The rows that a file speaks of."""
    found: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found.update(alias.name for alias in node.names)
            found.update(
                {"_composable.fsdp"} if str(node.module).endswith("_composable.fsdp") else ()
            )
        elif isinstance(node, ast.Attribute):
            found.update(_members(node, names))
        elif isinstance(node, ast.Call):
            found.update(_arguments(node, names))
        elif isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            found.update(f"{CLASS}({key}=)" for key in keys)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update({f"ShardingStrategy.{node.value}"} if "ShardingStrategy" in found else ())
            found.update({"_fsdp_wrapped_module"} if "_fsdp_wrapped" in node.value else ())
    return found


def _members(node: ast.Attribute, names: dict[str, str]) -> Iterator[str]:
    yield node.attr
    yield f"{CLASS}.{node.attr}"
    if isinstance(node.value, ast.Name):
        yield f"{names.get(node.value.id, '')}.{node.attr}"


def _arguments(node: ast.Call, names: dict[str, str]) -> Iterator[str]:
    given = [keyword.arg for keyword in node.keywords]
    called = names.get(node.func.id, node.func.id) if isinstance(node.func, ast.Name) else ""
    handed_on = [names.get(arg.id) for arg in node.args if isinstance(arg, ast.Name)]
    handed_on += [names.get(k.value.id) for k in node.keywords if isinstance(k.value, ast.Name)]
    if called in ("dict", CLASS) or CLASS in handed_on or _is_super(node):
        yield from (f"{CLASS}({name}=)" for name in given)
    yield from (f"{called}({name}=)" for name in given)
    if called == CLASS:
        parameters = list(inspect.signature(FSDP.__init__).parameters)[1:]
        yield from (f"{CLASS}({name}=)" for name in parameters[: len(node.args)])


def _is_super(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "__init__"


def covered() -> dict[str, list[str]]:
    """The programs that speak of each row."""
    table: dict[str, list[str]] = {row: [] for row in rows()}
    for name, files in fixture_runs.programs(FOLDERS).items():
        spoken = {row for file in files for row in mentioned(fixture_runs.FIXTURES / file)}
        for row in table:
            if row in spoken:
                table[row].append(name)
    return table


def test_every_name_is_in_a_fixture() -> None:
    assert not [row for row, found in covered().items() if not found]


def test_the_table_is_up_to_date() -> None:
    lines = ["| symbol | programs |", "|---|---|"]
    for row, found in covered().items():
        free = [name for name in found if not name.startswith("fsdp1_blocked")] or found
        more = f" and {len(free) - 4} more" if len(free) > 4 else ""
        lines.append(f"| `{row}` | {', '.join(f'`{name}`' for name in free[:4])}{more} |")
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    new = before + START + "\n".join(lines) + "\n" + END + after
    if os.environ.get("UPDATE_DOCS"):
        README.write_text(new, encoding="utf-8")
    assert README.read_text(encoding="utf-8") == new

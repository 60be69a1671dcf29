"""The files of a generated program: its parts in the layout of its description, with their imports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import program_model
import program_sharding
import program_states
import program_training
from program_features import Description
from program_tolerance import END

# Variables that one part of a program leaves to the others.
SHARED = (
    *("args", "config", "rank", "device", "model", "averaged", "optimizer", "scheduler", "scaler"),
    *("ema", "steps"),
)
FSDP1 = (
    *("BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig"),
    *(
        "MixedPrecision",
        "ShardedOptimStateDictConfig",
        "ShardedStateDictConfig",
        "ShardingStrategy",
    ),
    "StateDictType",
)
POLICIES = (
    *("CustomPolicy", "ModuleWrapPolicy", "_or_policy", "always_wrap_policy", "enable_wrap"),
    *(
        "lambda_auto_wrap_policy",
        "size_based_auto_wrap_policy",
        "transformer_auto_wrap_policy",
        "wrap",
    ),
)
IMPORTS = {
    "argparse": "import argparse",
    "contextlib": "import contextlib",
    "copy": "import copy",
    "dataclass": "from dataclasses import dataclass",
    "functools": "import functools",
    "torch": "import torch",
    "dist": "import torch.distributed as dist",
    "dcp": "import torch.distributed.checkpoint as dcp",
    "nn": "import torch.nn as nn",
    "init_device_mesh": "from torch.distributed.device_mesh import init_device_mesh",
    "ShardedGradScaler": "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler",
}
CHECKPOINTING = ("CheckpointImpl", "apply_activation_checkpointing", "checkpoint_wrapper")
CHECKPOINT_MODULE = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
RENAMED = {"FSDP": "Sharded", "MixedPrecision": "Precision", "StateDictType": "Kind"}


@dataclass
class Part:
    """Statements with a purpose: a function, a method, or lines of the script.

    Attributes:
        given: expressions of variables that each use of the part gets.
    """

    name: str
    body: list[str]
    given: dict[str, str] = field(default_factory=dict)

    def reads(self, available: Sequence[str]) -> list[str]:
        """The shared variables that come from other parts."""
        text = "\n".join(self.body)
        return [name for name in available if _occurs(text, name) or name in self.given]

    def assigns(self) -> list[str]:
        """The shared variables that the part leaves."""
        return [
            name
            for name in SHARED
            if re.search(rf"^\s*{name} = ", "\n".join(self.body), re.MULTILINE)
        ]


@dataclass
class Pieces:
    """All texts of a program before they are put into files."""

    classes: list[str]
    functions: list[str]
    batch: list[str]
    config: list[str]
    parts: list[Part]


def program(d: Description) -> dict[str, str]:
    """The files of a program by name, the script first."""
    pieces = _pieces(d)
    files = {"flat": _flat, "functions": _functions, "class": _trainer, "files": _files}[
        d["layout"]
    ](pieces)
    return {
        name: _text(d, lines, [one for one in files if one != name])
        for name, lines in files.items()
    }


def _pieces(d: Description) -> Pieces:
    config, settings, reading = _config(d)
    text = program_sharding.sharding(d, settings)
    build = program_sharding.build(d, text)
    if d["device"] == "cpu":
        setup = [
            'dist.init_process_group("gloo")',
            "rank = dist.get_rank()",
            'device = torch.device("cpu")',
        ]
    else:
        setup = [
            'dist.init_process_group("nccl")',
            "rank = dist.get_rank()",
            "torch.cuda.set_device(rank % torch.cuda.device_count())",
        ]
        setup.append('device = torch.device("cuda", torch.cuda.current_device())')
    parts = [
        Part("setup", [*setup, *reading]),
        Part("build_model", build),
        Part("make_optimizer", program_training.optimizer(d, settings)),
    ]
    train = program_training.train(d, settings)
    end = [*program_states.checksum(d), *program_training.average_checksum(d)]
    end.append(f'print("{END}")')
    resumes = d["resume"] != "none"
    parts.append(Part("train", train, {"steps": "range(2)" if resumes else "range(3)"}))
    if d["evaluation"] != "none":
        parts.append(Part("evaluate", program_training.evaluate(d)))
    if d["generation"] != "none":
        parts.append(Part("generate", program_training.generate(d)))
    if d["state"] != "none":
        parts.append(Part("save", program_states.save(d)))
    if resumes:
        parts.append(Part("train", train, {"steps": "range(2, 3)"}))
        parts.append(Part("checksum", end))
        if d["resume"] == "fresh":
            parts += parts[1:3]
        parts.append(Part("load", program_states.load(d)))
        parts.append(Part("train", train, {"steps": "range(2, 3)"}))
    parts.append(Part("checksum", end))
    parts.append(Part("finish", ["dist.barrier()", "dist.destroy_process_group()"]))
    classes = program_model.classes(d)
    return Pieces(classes, text.functions, program_training.batch(d), config, parts)


def _config(d: Description) -> tuple[list[str], dict[str, str], list[str]]:
    """The definition of the settings, the expressions that read them, and statements that make them."""
    strategy = program_sharding.STRATEGIES.get(d["strategy"], "FULL_SHARD")
    rate = "0.1" if d["optimizer"] in ("sgd", "momentum") else "0.01"
    kind = d["config"]
    if kind == "literals":
        literal = {"strategy": f"ShardingStrategy.{strategy}", "lr": rate, "clip": "0.5"}
        return [], literal, []
    if kind == "argparse":
        lines = [
            "def parse_args():",
            "    parser = argparse.ArgumentParser()",
            f'    parser.add_argument("--strategy", default="{strategy}")',
            f'    parser.add_argument("--lr", type=float, default={rate})',
            '    parser.add_argument("--clip", type=float, default=0.5)',
            "    return parser.parse_args()",
        ]
        read = "getattr(ShardingStrategy, args.strategy)"
        settings = {"strategy": read, "lr": "args.lr", "clip": "args.clip"}
        return [*lines, "", ""], settings, ["args = parse_args()"]
    if kind == "dataclass":
        lines = [
            "@dataclass",
            "class Config:",
            f"    strategy: ShardingStrategy = ShardingStrategy.{strategy}",
            f"    lr: float = {rate}",
            "    clip: float = 0.5",
        ]
        settings = {"strategy": "config.strategy", "lr": "config.lr", "clip": "config.clip"}
        return [*lines, "", ""], settings, ["config = Config()"]
    lines = [
        "STRATEGIES = {",
        f'    "chosen": ShardingStrategy.{strategy},',
        '    "other": ShardingStrategy.FULL_SHARD,',
        "}",
        f'SETTINGS = {{"strategy": "chosen", "lr": {rate}, "clip": 0.5}}',
    ]
    settings = {
        "strategy": 'STRATEGIES[SETTINGS["strategy"]]',
        "lr": 'SETTINGS["lr"]',
        "clip": 'SETTINGS["clip"]',
    }
    return [*lines, "", ""], settings, []


# Layouts ------------------------------------------------------------------------------------------


def _flat(pieces: Pieces) -> dict[str, list[str]]:
    lines = [*pieces.config, *pieces.classes, *pieces.functions, *pieces.batch]
    for part in pieces.parts:
        lines += [f"{name} = {value}" for name, value in part.given.items()]
        lines += [*part.body, ""]
    return {"train.py": lines}


def _definitions(parts: Sequence[Part]) -> tuple[dict[str, list[str]], list[str]]:
    """A function for each part, by name, and the statements that call them."""
    definitions: dict[str, list[str]] = {}
    calls: list[str] = []
    available: list[str] = []
    for part in parts:
        reads = [name for name in part.reads(SHARED) if name in available or name in part.given]
        assigns = part.assigns()
        if part.name not in definitions:
            body = ["    " + line if line else "" for line in part.body]
            if assigns:
                body.append(f"    return {', '.join(assigns)}")
            definitions[part.name] = [f"def {part.name}({', '.join(reads)}):", *body, "", ""]
            signature = reads
        else:
            head = definitions[part.name][0]
            signature = [
                name for name in head[head.index("(") + 1 : head.index(")")].split(", ") if name
            ]
        given = ", ".join(part.given.get(name, name) for name in signature)
        target = f"{', '.join(assigns)} = " if assigns else ""
        calls.append(f"{target}{part.name}({given})")
        available += [name for name in assigns if name not in available]
    return definitions, calls


def _main(calls: Sequence[str]) -> list[str]:
    return [
        "def main():",
        *("    " + call for call in calls),
        "",
        "",
        'if __name__ == "__main__":',
        "    main()",
    ]


def _functions(pieces: Pieces) -> dict[str, list[str]]:
    definitions, calls = _definitions(pieces.parts)
    lines = [*pieces.config, *pieces.classes, *pieces.functions, *pieces.batch]
    for one in definitions.values():
        lines += one
    return {"train.py": [*lines, *_main(calls)]}


def _files(pieces: Pieces) -> dict[str, list[str]]:
    definitions, calls = _definitions(pieces.parts)
    places = {
        "build_model": "sharding.py",
        "save": "states.py",
        "load": "states.py",
        "checksum": "states.py",
    }
    files: dict[str, list[str]] = {"train.py": [*pieces.batch], "sharding.py": [*pieces.functions]}
    for name, one in definitions.items():
        files.setdefault(places.get(name, "train.py"), []).extend(one)
    files["train.py"] += _main(calls)
    files["net.py"] = pieces.classes
    if pieces.config:
        files["settings.py"] = pieces.config
    return files


def _trainer(pieces: Pieces) -> dict[str, list[str]]:
    """A class whose methods are the parts and whose attributes are the shared variables."""
    shared = [name for name in SHARED if name != "steps"]
    definitions: dict[str, list[str]] = {}
    first, calls = [], []
    for part in pieces.parts:
        body = [_of_self(line, shared) for line in part.body]
        given = ", ".join(f"{value}" for value in part.given.values())
        call = f"{part.name}({given})"
        parameters = ", ".join(["self", *part.given])
        if part.name == "setup":
            first += body
            continue
        if part.name not in definitions:
            indented = ["        " + line if line else "" for line in body]
            definitions[part.name] = [f"    def {part.name}({parameters}):", *indented, ""]
        if part.name in ("build_model", "make_optimizer") and not calls:
            first.append(f"self.{call}")
        else:
            calls.append(f"trainer.{call}")
    lines = [*pieces.config, *pieces.classes, *pieces.functions, *pieces.batch]
    lines += ["class Trainer:", "    def __init__(self):", *("        " + x for x in first), ""]
    for one in definitions.values():
        lines += one
    lines += ["", *_main(["trainer = Trainer()", *calls])]
    return {"train.py": lines}


def _of_self(line: str, shared: Sequence[str]) -> str:
    names = "|".join(shared)
    return re.sub(rf"(?<![\w.\"'])({names})(?![\w\"']|=[^=])", r"self.\1", line)


def _occurs(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.\"']){name}(?![\w\"']|=[^=])", text) is not None


# Imports ------------------------------------------------------------------------------------------


def _text(d: Description, lines: list[str], others: Sequence[str]) -> str:
    """The text of a file: its imports and its lines, with FSDP1 under the names of the description."""
    body = "\n".join(lines).rstrip() + "\n"
    imports = [line for name, line in IMPORTS.items() if _uses(body, name)]
    used = [name for name in FSDP1 if _uses(body, name)]
    wraps = _uses(body, "FSDP")
    form = d["imports"]
    if form == "module" and (used or wraps):
        imports.append("import torch.distributed.fsdp as fsdp")
        body = re.sub(r"(?<![\w.\"])FSDP(?!\w)", "fsdp.FullyShardedDataParallel", body)
        for name in used:
            body = re.sub(rf"(?<![\w.\"]){name}(?!\w)", f"fsdp.{name}", body)
    elif form == "renamed":
        names = [*used, *(["FSDP"] if wraps else [])]
        imported = {"FSDP": "FullyShardedDataParallel"}
        for name in names:
            new = RENAMED.get(name)
            line = f"from torch.distributed.fsdp import {imported.get(name, name)}"
            imports.append(f"{line} as {new}" if new else line)
            if new:
                body = re.sub(rf"(?<![\w.\"]){name}(?!\w)", new, body)
    else:
        names = list(used)
        if wraps and form == "name":
            names.append("FullyShardedDataParallel")
            body = re.sub(r"(?<![\w.\"])FSDP(?!\w)", "FullyShardedDataParallel", body)
        elif wraps:
            imports.append("from torch.distributed.fsdp import FullyShardedDataParallel as FSDP")
        imports += _from("torch.distributed.fsdp", names)
    imports += _from("torch.distributed.fsdp.wrap", [x for x in POLICIES if _uses(body, x)])
    imports += _from(CHECKPOINT_MODULE, [x for x in CHECKPOINTING if _uses(body, x)])
    imports += _project_imports(body, others)
    return "\n".join([*imports, "", "", ""]) + body


def _from(module: str, names: Sequence[str]) -> list[str]:
    if len(names) <= 2:
        return [f"from {module} import {', '.join(names)}"] if names else []
    return [f"from {module} import (", *(f"    {name}," for name in names), ")"]


def _uses(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.\"']){name}(?![\w\"'])", text) is not None


_DEFINED = {
    "net.py": ("Block", "Mlp", "Net"),
    "settings.py": ("Config", "SETTINGS", "STRATEGIES", "parse_args"),
    "sharding.py": ("build_model",),
    "states.py": ("checksum", "load", "save"),
}


def _project_imports(body: str, others: Sequence[str]) -> list[str]:
    lines = []
    for file in others:
        names = [
            name
            for name in _DEFINED.get(file, ())
            if _uses(body, name) and f"def {name}(" not in body and f"class {name}" not in body
        ]
        if names:
            lines.append(f"from {file.removesuffix('.py')} import {', '.join(names)}")
    return lines

"""What each way of asking for fixes makes of the same files: they have to agree.

`tests/test_agreement.py` asks for the fixtures, `tests/corpus/agreement.py` for programs of others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fsdplint import api
from fsdplint.config.command_line import CommandLine
from fsdplint.engine.migration import MigrationRun
from fsdplint.engine.migrator import migration_rules
from fsdplint.engine.operations import fix_files
from fsdplint.engine.session import Session
from fsdplint.server.analysis import RootChecker

TORCH = "2.13"
Texts = Mapping[str, str]  # of the files that change, by their real paths

UNRELATED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from utils import clip


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


def main():
    dist.init_process_group("gloo")
    model = FSDP(Layer(), forward_prefetch=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(2, 4)).sum().backward()
    clip(model)
    optimizer.step()
    torch.save(model._flat_param, "flat.pt")


if __name__ == "__main__":
    main()
"""

UTILS = """\
def clip(model):
    model.clip_grad_norm_(1.0)
"""


def add_unrelated(root: Path) -> Path:
    """Put a program that cannot be migrated into a folder of a project, and give the folder.

    Its modules have the names that those of other programs have.
    """
    folder = root / "unrelated_program"
    folder.mkdir()
    names = ("train.py", "utils.py", "train_utils.py", "model.py", "requirements.txt")
    for name, text in zip(names, (UNRELATED, UTILS, UTILS, UTILS, "torch==2.1\n"), strict=True):
        (folder / name).write_text(text)
    return folder


def ways(*, project: bool) -> dict[str, Callable[[Sequence[Path]], Texts]]:
    """The ways of asking, by name; each gives the texts that fixing some paths makes.

    project: whether other files of the project may be changed.
    """
    codes = tuple(rule.code for rule in migration_rules())
    line = CommandLine(select=codes, target_torch=TORCH, project=project, no_baseline=True)

    def fix(paths: Sequence[Path]) -> Texts:
        changes = fix_files(Session(paths, line))
        return _decoded({path: new for path, (_, new) in changes.contents.items()})

    def migrate(paths: Sequence[Path]) -> Texts:
        migrated = MigrationRun(paths, TORCH, project=project).migrate(fix=True)
        return _decoded({path: new for path, (_, new) in migrated.contents.items()})

    def from_python(paths: Sequence[Path]) -> Texts:
        fixed = api.fix(paths, select=codes, target_torch=TORCH, project=project)
        return {os.path.realpath(one.path): one.after for one in fixed.changes}

    def server(paths: Sequence[Path]) -> Texts:
        (path,) = paths
        found = RootChecker(line).fix(os.path.realpath(path), {}, lambda: False, project=project)
        return {path: after for path, (_, after) in found.items()}

    return {"fix": fix, "migrate": migrate, "api": from_python, "server": server}


def _decoded(contents: Mapping[Path, bytes]) -> Texts:
    return {os.path.realpath(path): data.decode("utf-8") for path, data in contents.items()}


def disagreements(file: Path, unrelated: Path, *, thorough: bool = False) -> list[str]:
    """Where the ways disagree on a program: on it alone, and together with an unrelated folder.

    thorough: every way is asked about both; otherwise some are asked about one of them.
    """
    alone, first, last = [file], [file, unrelated], [unrelated, file]
    asked = {"fix": [alone], "migrate": [first], "api": [last], "server": [alone]}
    if thorough:
        asked |= {name: [alone, first, last] for name in ("fix", "migrate", "api")}
    found: list[str] = []
    texts: Texts | None = None
    every = ways(project=True)
    for name, paths in ((name, paths) for name, several in asked.items() for paths in several):
        new = {path: text for path, text in every[name](paths).items() if not _in(path, unrelated)}
        texts = new if texts is None else texts
        differ = sorted(p for p in {*new, *texts} if new.get(p) != texts.get(p))
        if differ:
            other = " with another folder" if len(paths) > 1 else ""
            found.append(f"{name}{other}: {', '.join(differ)}")
    return found


def _in(path: str, folder: Path) -> bool:
    return Path(path).is_relative_to(os.path.realpath(folder))

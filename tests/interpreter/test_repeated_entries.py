"""A function that only leads to what programs have shown is run once."""

from __future__ import annotations

from pathlib import Path

from fsdplint.interpreter import Program, load

TRAIN = """
import torch
from torch.distributed.fsdp import fully_shard

def main(**options):
    model = torch.nn.Linear(2, 2)
    if options["sharded"]:
        fully_shard(model)
    if options["compiled"]:
        model.compile()
    optimizer = torch.optim.SGD(model.parameters())
    if options["saves"]:
        torch.save(model.state_dict(), "model.pt")

if __name__ == "__main__":
    main(**vars(parse()))
"""
TEST = """
from train import main

def test_main():
    main(**options())
"""


def runs(folder: Path, test: str) -> int:
    """The traces of the runs of a file besides the program."""
    (folder / "train.py").write_text(TRAIN)
    (folder / "test_train.py").write_text(test)
    program: Program = load([folder / "train.py", folder / "test_train.py"])
    return sum(not trace.entry for trace in program.traces)


def test_a_function_that_shows_nothing_new_is_run_once(tmp_path: Path) -> None:
    assert runs(tmp_path, TEST) == 1


def test_a_function_with_a_test_of_its_own_is_run_in_its_configurations(tmp_path: Path) -> None:
    assert runs(tmp_path, TEST + "    if reset:\n        main(**options()).state_dict()\n") > 1


def test_a_function_with_a_call_of_its_own_is_run_in_its_configurations(tmp_path: Path) -> None:
    assert runs(tmp_path, TEST + "    main(**options()).state_dict()\n") > 1

"""The sites to which the names in a program lead."""

from __future__ import annotations

from fsdplint.source.source import Source
from fsdplint.syntax.named_sites import reachable_sites

LIBRARY = """\
import torch

class Trainer:
    def __init__(self, model):
        self.optimizer = torch.optim.AdamW(model.parameters())

    def train(self):
        self.step_once()

    def step_once(self):
        self.optimizer.step()

def save(state):
    torch.save(state, "model.pt")

torch.load("model.pt")
"""


def lines(program: str) -> list[int]:
    entry, library = Source("main.py", program), Source("library.py", LIBRARY)
    found = reachable_sites(entry, [entry, library])
    return sorted(library.position(library.span(node)[0])[0] for node in found)


def test_functions_and_methods_by_their_names() -> None:
    assert lines("from library import Trainer\nTrainer(model).train()\n") == [5, 11]


def test_the_constructor_is_called_by_the_name_of_the_class() -> None:
    assert lines("import library\nmade = library.Trainer\n") == [5]


def test_names_in_functions_of_the_program() -> None:
    assert lines("def main():\n    save(1)\n\nif __name__ == '__main__':\n    main()\n") == [14]
    assert lines("def main():\n    save(1)\n") == []

"""`model.module` of FSDP1's wrapper, where other configurations have another wrapper or none."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

CHOICE = """
class Sized(Net):
    def __init__(self):
        super().__init__()
        self.size = 3


class Trainer:
    def __init__(self, kind):
        self.model = Sized().cuda()
        if kind == "fsdp":
            self.model = FSDP(self.model)
        elif kind == "ddp":
            self.model = nn.parallel.DistributedDataParallel(self.model)
        self.size = {use}


Trainer(os.environ["KIND"])
"""


def test_a_wrapper_or_none(tmp_path: Path) -> None:
    text = migrated(tmp_path, CHOICE.format(use="self.model.module.size"))
    asked = "(self.model if isinstance(self.model, FSDPModule) else self.model.module)"
    assert f"self.size = {asked}.size" in text


def test_ddp_otherwise(tmp_path: Path) -> None:
    body = CHOICE.replace('elif kind == "ddp"', "else").format(use="self.model.module.size")
    asked = '(self.model.module if hasattr(self.model, "module") else self.model)'
    assert f"self.size = {asked}.size" in migrated(tmp_path, body)


def test_an_attribute_that_the_program_sets(tmp_path: Path) -> None:
    body = CHOICE.format(use="self.model.module.size").replace("self.size = 3", "self.module = 3")
    text = migrated(tmp_path, body.replace("module.size", "module.blocks"))
    assert "(self.model if isinstance(self.model, FSDPModule) else self.model.module)" in text


def test_a_compiled_model_blocks(tmp_path: Path) -> None:
    found, _ = plan(
        tmp_path,
        CHOICE.format(use="self.model.module.size").replace(
            "self.model = FSDP(self.model)", "self.model = torch.compile(FSDP(self.model))"
        ),
    )
    assert [one.code for one in found.blockers] == ["FSDP299-module-of-sometimes-wrapped"]


QUESTIONS = {
    "a block": (
        'if hasattr(model, "module"):\n    model.module.eval()\n',
        "if isinstance(model, FSDPModule):\n    model.eval()\n",
    ),
    "an operand": (
        'found = rank == 0 and hasattr(model, "module")\n',
        "found = rank == 0 and isinstance(model, FSDPModule)\n",
    ),
    "a choice": (
        'net = model\nif hasattr(model, "module"):\n    net = model.module\n',
        'net = model\nif hasattr(model, "module"):\n    net = model\n',
    ),
    "another model": (
        'net = Net()\nif hasattr(net, "module"):\n    net.module.eval()\n',
        'net = Net()\nif hasattr(net, "module"):\n    net.module.eval()\n',
    ),
}


@pytest.mark.parametrize(("before", "after"), list(QUESTIONS.values()), ids=list(QUESTIONS))
def test_a_question_about_the_wrapper(before: str, after: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, f"rank = dist.get_rank()\nmodel = FSDP(Net())\n{before}")
    assert after in text


SOMETIMES = {
    "a block": (
        'if hasattr(model, "module"):\n    model.module.eval()\n',
        'if isinstance(model, FSDPModule) or hasattr(model, "module"):\n',
    ),
    "a choice of a name": (
        'if hasattr(model, "module"):\n    net = model.module\nelse:\n    net = model\n',
        'if hasattr(model, "module"):\n    net = model.module\nelse:\n    net = model\n',
    ),
    "a loop": (
        'while hasattr(model, "module"):\n    model = model.module\n',
        'while hasattr(model, "module"):\n    model = model.module\n',
    ),
}


@pytest.mark.parametrize(("before", "after"), list(SOMETIMES.values()), ids=list(SOMETIMES))
def test_a_question_about_several_wrappers(before: str, after: str, tmp_path: Path) -> None:
    head = """
    kind = os.environ["KIND"]
    model = Net().cuda()
    if kind == "fsdp":
        model = FSDP(model)
    elif kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    """
    assert after in migrated(tmp_path, textwrap.dedent(head) + before)


def test_a_configuration_that_no_run_tries(tmp_path: Path) -> None:
    body = """
    class Trainer:
        def __init__(self, args):
            self.args = args
            self.model = Net().cuda()
            if self.args.fsdp:
                self.model = FSDP(self.model)
            elif self.args.ddp:
                self.model = nn.parallel.DistributedDataParallel(self.model)
            if self.args.freeze:
                self.model.module.eval()
            if self.args.fsdp:
                self.model.module.train()


    parser = argparse.ArgumentParser()
    parser.add_argument("--fsdp", action="store_true")
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--freeze", action="store_true")
    Trainer(parser.parse_args())
    """
    text = migrated(tmp_path, "import argparse\n" + textwrap.dedent(body))
    assert "self.model.train()" in text
    assert "        self.model.eval()" not in text


def test_another_model_of_ddp(tmp_path: Path) -> None:
    body = """
    model = FSDP(Net())
    other = nn.parallel.DistributedDataParallel(Net().cuda())
    print(model.module.blocks, other.module.blocks)
    """
    text = migrated(tmp_path, textwrap.dedent(body))
    assert "print(model.blocks, other.module.blocks)" in text


def test_arms_that_go_on_in_the_same_way(tmp_path: Path) -> None:
    body = """
    def first_layer(model):
        return model.module.blocks[0].linear if isinstance(model, FSDP) else model.{0}


    print(first_layer(FSDP(Net())), first_layer(Net()))
    """
    text = migrated(tmp_path, body.replace("{0}", "blocks[0].linear"))
    assert "    return model.blocks[0].linear\n" in text and "isinstance" not in text
    text = migrated(tmp_path, body.replace("{0}", "blocks[1].linear"))
    assert "model.blocks[0].linear if isinstance(model, FSDPModule) else model.blocks[1]" in text


def test_a_choice_whose_sides_become_equal(tmp_path: Path) -> None:
    body = 'print(model.module.blocks if hasattr(model, "module") else model.blocks)\n'
    model = "model = Net()\nif os.environ.get('SHARD'):\n    model = FSDP(model)\n"
    assert migrated(tmp_path, model + body).endswith("print(model.blocks)\n")
    body = body.replace('hasattr(model, "module")', "isinstance(model, FSDP)")
    assert migrated(tmp_path, model + body).endswith("print(model.blocks)\n")

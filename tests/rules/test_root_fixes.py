"""Fixes of FSDP104, FSDP105 and FSDP107 in shapes that the rules' examples do not show."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from contract_programs import STEP, fixed, found, program, rule

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace


def test_a_model_that_goes_out_of_sight_may_be_sharded_there(tmp_path: Path) -> None:
    known = "model = Net()\n{call}\nfully_shard(model)\n"
    assert found(tmp_path, "FSDP104", known.format(call="print(model)")) == ["fully_shard(model)"]
    hidden = "from somewhere import parallelize\n\n" + known.format(call="parallelize(model)")
    assert found(tmp_path, "FSDP104", hidden) == []


def test_a_root_that_may_be_sharded_out_of_sight_is_no_finding(tmp_path: Path) -> None:
    body = """\
    {imports}
    model = Net()
    for layer in model.layers:
        fully_shard(layer)
    {call}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """ + textwrap.indent(STEP, "    ")
    assert len(found(tmp_path, "FSDP105", body.format(imports="", call=""))) == 1
    hidden = body.format(imports="from somewhere import finish", call="finish(model)")
    assert found(tmp_path, "FSDP105", hidden) == []


def test_the_root_goes_after_all_loops_and_has_their_options(tmp_path: Path) -> None:
    body = """\
    from torch.distributed.fsdp import MixedPrecisionPolicy


    def parallelize(net, mesh, policy):
        for index, layer in enumerate(net.layers):
            keep = index == len(net.layers) - 1
            fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=not keep)
        return net


    model = parallelize(Net(), None, MixedPrecisionPolicy())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    """ + textwrap.indent(STEP, "    ")
    path = program(tmp_path, body)
    text = fix(Workspace([path], unsafe=True), [rule("FSDP105")]).texts[path]
    assert (
        "reshard_after_forward=not keep)\n"
        "    fully_shard(net, mesh=mesh, mp_policy=policy)\n"
        "    return net\n"
    ) in text


def test_no_root_is_put_before_a_part_that_is_used_alone(tmp_path: Path) -> None:
    body = """\
    model = Net()
    for layer in model.layers:
        fully_shard(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.head(torch.ones(1, 4))
    """ + textwrap.indent(STEP, "    ")
    assert fixed(tmp_path, "FSDP105", body) is None


def test_a_comprehension_over_modules_is_reversed(tmp_path: Path) -> None:
    body = """\
    model = Net()
    [fully_shard(m) for m in model.modules() if isinstance(m, (Block, nn.Linear))]
    fully_shard(model)
    """
    after = fixed(tmp_path, "FSDP106", body)
    assert after is not None
    assert "[fully_shard(m) for m in reversed(list(model.modules())) if" in after


def test_a_root_does_not_move_across_a_use_of_it(tmp_path: Path) -> None:
    body = """\
    model = Net()
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for layer in model.layers:
        fully_shard(layer)
    """
    assert found(tmp_path, "FSDP106", body) == ["fully_shard(layer)"]
    assert fixed(tmp_path, "FSDP106", body) is None


def test_a_root_moves_behind_two_loops(tmp_path: Path) -> None:
    body = """\
    class Two(Net):
        def __init__(self):
            super().__init__()
            self.more = nn.ModuleList([Block(), Block()])


    def shard(model):
        fully_shard(model)
        layers = model.layers
        for layer in layers:
            fully_shard(layer)
        for layer in model.more:
            fully_shard(layer)


    shard(Two())
    """
    path = program(tmp_path, body)
    text = fix(Workspace([path]), [rule("FSDP106")]).texts[path]
    assert (
        "def shard(model):\n"
        "    layers = model.layers\n"
        "    for layer in layers:\n"
        "        fully_shard(layer)\n"
        "    for layer in model.more:\n"
        "        fully_shard(layer)\n"
        "    fully_shard(model)\n"
    ) in text


def test_the_class_that_a_loop_looks_for_is_not_the_root_of_unknown_class(tmp_path: Path) -> None:
    body = """\
    from transformers import AutoModel
    from somewhere import Layer

    model = AutoModel.from_pretrained("x")
    for module in model.modules():
        if isinstance(module, Layer):
            fully_shard(module)
    fully_shard(model)
    """
    assert found(tmp_path, "FSDP106", body) == []


@pytest.mark.parametrize("choice", [True, False])
def test_blocks_that_are_sharded_on_demand_are_no_finding(tmp_path: Path, choice: bool) -> None:
    body = """\
    import argparse

    def main(args):
        model = Net()
        if args.blocks:
            {}
        fully_shard(model)

    main(argparse.ArgumentParser().parse_args())
    """.format("[fully_shard(layer) for layer in model.layers]" if choice else "print('all')")
    assert found(tmp_path, "FSDP104", body) == ([] if choice else ["fully_shard(model)"])


@pytest.mark.parametrize(
    "loop",
    [
        "for m in model.modules():\n    if type(m).__name__ in names:\n        fully_shard(m)",
        "for n, m in model.named_modules():\n    if n in ('layers.0', 'layers.1'):\n        fully_shard(m)",
        "for n, m in model.named_modules():\n"
        "    if isinstance(m, (Block, nn.Linear)) and names(n):\n        fully_shard(m)",
        "chosen = [m for m in model.modules() if m.__class__.__name__ in names]\n"
        "for m in chosen:\n    fully_shard(m)",
    ],
)
def test_a_loop_whose_choice_is_not_known_is_no_finding(tmp_path: Path, loop: str) -> None:
    body = f"from somewhere import names\n\nmodel = Net()\n{loop}\nfully_shard(model)\n"
    assert found(tmp_path, "FSDP106", body) == []

"""Fixes of FSDP101 to FSDP107 in shapes that the rules' examples do not show."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.registry.rule import Rule
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(4)])
        self.head = nn.Linear(4, 1)

    def encode(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, x):
        return self.head(self.encode(x))


"""


def rule(code: str) -> Rule:
    found = rule_by_code(code)
    assert found is not None
    return found()


def program(folder: Path, body: str, newline: str = "\n") -> Path:
    path = folder / "train.py"
    text = HEAD + textwrap.dedent(body)
    path.write_bytes(text.replace("\n", newline).encode())
    return path


def fixed(folder: Path, code: str, body: str, newline: str = "\n") -> str | None:
    """The body after the fix of one rule, or None where nothing was fixed."""
    path = program(folder, body, newline)
    result = fix(Workspace([path], unsafe=True), [rule(code)])
    if path not in result.texts:
        return None
    text = result.texts[path]
    assert not fix(Workspace([path], unsafe=True, overrides={path: text}), [rule(code)]).texts
    return text.split(f"{newline}{newline}{newline}")[-1]


def found(folder: Path, code: str, body: str) -> list[str]:
    """The lines of the body at which a rule finds something."""
    path = program(folder, body)
    lines = path.read_text().splitlines()
    return [lines[f.site.location().line - 1].strip() for f in check(load([path]), [rule(code)])]


STEP = """
loss = model(torch.ones(1, 4)).mean()
loss.backward()
optimizer.step()
"""


# FSDP103 -----------------------------------------------------------------------------------------


def test_the_parameters_that_were_listed_before_move_along(tmp_path: Path) -> None:
    body = """\
    model = Net()
    lr = 0.1
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=lr)
    fully_shard(model)
    """ + textwrap.indent(STEP, "    ")
    after = fixed(tmp_path, "FSDP103", body)
    assert after is not None
    assert after.startswith(
        "model = Net()\n"
        "lr = 0.1\n"
        "fully_shard(model)\n"
        "params = [p for p in model.parameters() if p.requires_grad]\n"
        "optimizer = torch.optim.SGD(params, lr=lr)\n"
    )


def test_what_the_optimizer_needs_is_not_moved_from_under_another_use(tmp_path: Path) -> None:
    body = """\
    model = Net()
    params = list(model.parameters())
    print(len(params))
    optimizer = torch.optim.SGD(params, lr=0.1)
    fully_shard(model)
    """ + textwrap.indent(STEP, "    ")
    assert fixed(tmp_path, "FSDP103", body) is None


@pytest.mark.parametrize(
    "between",
    [
        "optimizer.zero_grad()",
        "print(optimizer)",
        "lr = 0.2",
        "if not torch.cuda.is_available():\n    raise SystemExit(1)",
    ],
)
def test_an_optimizer_does_not_move_across_its_use(tmp_path: Path, between: str) -> None:
    body = "model = Net()\nlr = 0.1\noptimizer = torch.optim.SGD(model.parameters(), lr=lr)\n"
    body += f"{between}\nfully_shard(model)\n{STEP}"
    assert found(tmp_path, "FSDP103", body) == [
        "optimizer = torch.optim.SGD(model.parameters(), lr=lr)"
    ]
    moved = fixed(tmp_path, "FSDP103", body)
    assert moved is None


def test_a_conditional_sharding_moves_the_optimizer_behind_the_condition(tmp_path: Path) -> None:
    body = """\
    def main(args):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # plain

        if args.fsdp:
            model = FSDP(model, device_id=0)
        else:
            model = model.cuda()

        for batch in range(10):
            model(torch.ones(1, 4)).mean().backward()
            optimizer.step()
    """
    after = fixed(tmp_path, "FSDP103", body)
    assert after is not None
    assert (
        "    model = Net()\n\n"
        "    if args.fsdp:\n"
        "        model = FSDP(model, device_id=0)\n"
        "    else:\n"
        "        model = model.cuda()\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # plain\n\n"
        "    for batch"
    ) in after


def test_windows_newlines_stay(tmp_path: Path) -> None:
    body = "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    body += f"fully_shard(model)\n{STEP}"
    after = fixed(tmp_path, "FSDP103", body, newline="\r\n")
    assert after is not None
    assert "fully_shard(model)\r\noptimizer = torch" in after
    assert after.count("\n") == after.count("\r\n")


def test_a_function_of_unknown_effect_on_the_optimizer_is_no_finding(tmp_path: Path) -> None:
    body = """\
    from somewhere import rebind

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model)
    rebind(optimizer, model)
    """ + textwrap.indent(STEP, "    ")
    assert found(tmp_path, "FSDP103", body) == []


def test_an_optimizer_given_new_groups_is_no_finding(tmp_path: Path) -> None:
    body = """\
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model)
    optimizer.param_groups.clear()
    optimizer.add_param_group({"params": model.parameters()})
    """ + textwrap.indent(STEP, "    ")
    assert found(tmp_path, "FSDP103", body) == []


def test_use_orig_params_that_is_not_known_is_no_finding(tmp_path: Path) -> None:
    body = """\
    from somewhere import load_options


    def main(args):
        options = load_options()
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model = FSDP(model, {options})
        model(torch.ones(1, 4)).mean().backward()
        optimizer.step()
    """
    assert found(tmp_path, "FSDP103", body.format(options="use_orig_params=args.orig")) == []
    assert found(tmp_path, "FSDP103", body.format(options="**options")) == []
    assert len(found(tmp_path, "FSDP103", body.format(options="use_orig_params=False"))) == 1


# FSDP104 and FSDP105 -----------------------------------------------------------------------------


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


# FSDP101, FSDP102, FSDP106 -----------------------------------------------------------------------


def test_parameters_gathered_and_freed_again(tmp_path: Path) -> None:
    body = "model = Net()\nfully_shard(model)\nmodel.unshard()\n{}model.forward(torch.ones(1, 4))\n"
    assert found(tmp_path, "FSDP101", body.format("")) == []
    assert found(tmp_path, "FSDP101", body.format("model.reshard()\n")) == [
        "model.forward(torch.ones(1, 4))"
    ]


def test_a_call_over_several_lines_keeps_its_layout(tmp_path: Path) -> None:
    body = """\
    model = Net()
    fully_shard(model)
    out = model.forward(
        torch.ones(1, 4),  # one
    )
    """
    after = fixed(tmp_path, "FSDP101", body)
    assert after is not None
    assert after.endswith("out = model(\n    torch.ones(1, 4),  # one\n)\n")


def test_a_part_called_outside_its_root_has_no_fix(tmp_path: Path) -> None:
    body = """\
    model = Net()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    model(torch.ones(1, 4)).mean().backward()
    model.layers[0].forward(torch.ones(1, 4))
    """
    assert len(found(tmp_path, "FSDP101", body)) == 1
    assert fixed(tmp_path, "FSDP101", body) is None


COMPILED = """\
class Scaled(Net):
    def forward(self, x):
        x = super().forward(self.encode(x))
        return self.head.forward(x) * 2


model = Scaled()
fully_shard(model)
model = torch.compile(model)
"""


@pytest.mark.parametrize("code", ["FSDP101", "FSDP102"])
def test_the_call_of_a_compiled_module_gathers(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, code, COMPILED + "model(torch.ones(1, 4))\n") == []


def test_a_wrapper_around_the_compiled_module_gathers(tmp_path: Path) -> None:
    body = (
        COMPILED + "model = nn.parallel.DistributedDataParallel(model)\nmodel(torch.ones(1, 4))\n"
    )
    assert found(tmp_path, "FSDP101", body) == []


def test_parts_that_are_put_back_compiled_are_called_so(tmp_path: Path) -> None:
    body = """\
    class Scaled(Block):
        def forward(self, x):
            return 2 * super().forward(x)


    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Scaled() for _ in range(4)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x


    model = Deep()
    for name, layer in model.layers.named_children():
        layer = torch.compile(layer)
        fully_shard(layer)
        model.layers.register_module(name, layer)
    fully_shard(model)
    model(torch.ones(1, 4))
    """
    assert found(tmp_path, "FSDP101", body) == []


def test_a_method_of_a_compiled_module_does_not_gather(tmp_path: Path) -> None:
    body = COMPILED + "model.encode(torch.ones(1, 4))\n"
    assert found(tmp_path, "FSDP102", body) == ["model.encode(torch.ones(1, 4))"]
    after = fixed(tmp_path, "FSDP102", body)
    assert (
        after is not None
        and (
            'fully_shard(model)\nregister_fsdp_forward_method(model, "encode")\nmodel = torch.compile'
        )
        in after
    )


def test_super_cannot_be_called(tmp_path: Path) -> None:
    body = """\
    class Scaled(Net):
        def scaled(self, x):
            return super().forward(x) * 2


    model = Scaled()
    fully_shard(model)
    model.scaled(torch.ones(1, 4))
    """
    assert found(tmp_path, "FSDP101", body) == ["return super().forward(x) * 2"]
    assert fixed(tmp_path, "FSDP101", body) is None


def test_two_methods_are_both_registered(tmp_path: Path) -> None:
    body = """\
    class Pair(Net):
        def embed(self, x):
            return self.layers[0](x)

        def score(self, x):
            return self.head(x)


    model = Pair()
    fully_shard(model)
    model.score(model.embed(torch.ones(1, 4)))
    """
    path = program(tmp_path, body)
    text = fix(Workspace([path]), [rule("FSDP102")]).texts[path]
    assert text.count('register_fsdp_forward_method(model, "score")\n') == 1
    assert text.count('register_fsdp_forward_method(model, "embed")\n') == 1
    assert text.index("fully_shard(model)") < text.index("register_fsdp_forward_method(model,")


def test_a_method_is_registered_after_the_call_that_shards(tmp_path: Path) -> None:
    body = """\
    def build():
        return fully_shard(Net())


    model = build()
    model.encode(torch.ones(1, 4))
    """
    assert fixed(tmp_path, "FSDP102", body) == (
        'model = build()\nregister_fsdp_forward_method(model, "encode")\n'
        "model.encode(torch.ones(1, 4))\n"
    )


SHARED = """\
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x):
        return self.linear(x)


def shard(model):
    fully_shard(model)
    return model


"""


@pytest.mark.parametrize(
    "models",
    [
        "critic = shard(Critic())\nmodel = shard(Net())\n",
        "critic = Critic()\nshard(critic)\nmodel = Net()\nshard(model)\n",
        "sharders = [shard]\nmodel = shard(Net())\n",
    ],
)
def test_what_shards_several_models_registers_no_method_of_one(tmp_path: Path, models: str) -> None:
    body = SHARED + models + "model.encode(torch.ones(1, 4))\n"
    after = fixed(tmp_path, "FSDP102", body)
    assert after is not None
    assert after.endswith(
        f'{models}register_fsdp_forward_method(model, "encode")\nmodel.encode(torch.ones(1, 4))\n'
    )


@pytest.mark.parametrize(
    "models",
    [
        "model, critic = Net(), Critic()\nfor m in (model, critic):\n    fully_shard(m)\n",
        "model, critic = Net(), Critic()\nfor m in (model, critic):\n    shard(m)\n",
        "def main(kind):\n    model = shard(kind())\n    model.encode(torch.ones(1, 4))\n\n\nmain(Net)\n",
        "def build(name):\n    if name == 'critic':\n        return Critic()\n    return Net()\n\n\n"
        "from settings import name\nmodel = build(name)\nfully_shard(model)\n"
        "if name != 'critic':\n    model.encode(torch.ones(1, 4))\n",
    ],
)
def test_no_method_is_registered_where_a_model_without_it_may_come_by(
    tmp_path: Path, models: str
) -> None:
    end = "" if "encode" in models else "model.encode(torch.ones(1, 4))\n"
    assert len(found(tmp_path, "FSDP102", SHARED + models + end)) == 1
    assert fixed(tmp_path, "FSDP102", SHARED + models + end) is None


def test_a_sharding_function_that_another_file_imports_registers_nothing(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "critic.py").write_text("from train import shard\n\nmodel = shard(something())\n")
    body = "def shard(model):\n    fully_shard(model)\n\n\n"
    body += "model = Net()\nshard(model)\nmodel.encode(torch.ones(1, 4))\n"
    after = fixed(tmp_path, "FSDP102", body)
    assert after is not None and after.startswith(
        'model = Net()\nshard(model)\nregister_fsdp_forward_method(model, "encode")\n'
    )
    (tmp_path / "critic.py").unlink()
    path = program(tmp_path, body)
    text = fix(Workspace([path]), [rule("FSDP102")]).texts[path]
    assert '    fully_shard(model)\n    register_fsdp_forward_method(model, "encode")\n' in text


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


# FSDP109 -----------------------------------------------------------------------------------------


def test_nothing_helps_before_a_statement_that_calls_the_model_itself(tmp_path: Path) -> None:
    body = """\
    model = Net()
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=model(torch.ones(1, 4)).item())
    model(torch.ones(1, 4)).mean().backward()
    optimizer.step()
    """
    assert len(found(tmp_path, "FSDP109", body)) == 1
    assert fixed(tmp_path, "FSDP109", body) is None

"""Fixes of FSDP101, FSDP102, FSDP106 and FSDP109 in shapes that the rules' examples do not show."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract_programs import fixed, found, program, rule

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace

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

"""How models are followed from where they are built to where they are sharded."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from programs import class_of, events, program

from fsdplint.trace import (
    Called,
    Fsdp1Used,
    Fsdp2Used,
    Layout,
    ModuleAttached,
    OptimizerBuilt,
    Saved,
    Sharded,
    Wrapped,
)

SHARD_LOOPS = {
    "attribute": "for layer in model.layers:\n    fully_shard(layer)",
    "index": "for i in range(len(model.layers)):\n    fully_shard(model.layers[i])",
    "enumerate": "for i, layer in enumerate(model.layers):\n    fully_shard(layer)",
    "children": "for child in model.layers.children():\n    fully_shard(child)",
    "named": "for name, child in model.layers.named_children():\n    fully_shard(child)",
    "modules": "for m in reversed(list(model.modules())):\n"
    "    if isinstance(m, Block):\n        fully_shard(m)",
    "tuple": "for m in model.modules():\n    if isinstance(m, (Block, nn.GRU)):\n        fully_shard(m)",
    "comprehension": "[fully_shard(m) for m in model.modules() if isinstance(m, Block)]",
    "selected": "blocks = [m for m in model.modules() if type(m) is Block or isinstance(m, Block)]\n"
    "for block in blocks:\n    fully_shard(block)",
    "apply": "def shard(m):\n    if isinstance(m, Block):\n        fully_shard(m)\nmodel.apply(shard)",
    "lambda": "model.apply(lambda m: fully_shard(m) if isinstance(m, Block) else m)",
    "map": "list(map(fully_shard, model.layers))",
    "named_modules": "for n, m in model.named_modules():\n"
    "    if isinstance(m, Block):\n        fully_shard(m)",
    "get_submodule": "fully_shard(model.get_submodule('layers')[0])",
    "getattr": "for layer in getattr(model, 'layers'):\n    fully_shard(layer)",
    "assigned": "for i, layer in enumerate(model.layers):\n"
    "    model.layers[i] = fully_shard(layer)",
}


@pytest.mark.parametrize("loop", SHARD_LOOPS.values(), ids=SHARD_LOOPS)
def test_blocks_are_sharded_in_every_kind_of_loop(tmp_path: Path, loop: str) -> None:
    found = program(tmp_path, f"model = Net()\n{loop}\nfully_shard(model)\n")
    sharded = [class_of(found, e.module) for e in found.traces[0].of(Sharded)]
    assert sharded[-1] == "Net"
    assert set(sharded[:-1]) == {"Block"}


@pytest.mark.parametrize("path", ["head", "layers.0", "layers.0.linear"])
def test_a_submodule_is_replaced_by_its_path(tmp_path: Path, path: str) -> None:
    found = program(
        tmp_path,
        f"model = Net()\nmodel.set_submodule({path!r}, nn.GRU(8, 8))\n"
        f"fully_shard(model.get_submodule({path!r}))\n",
    )
    assert [class_of(found, e.module) for e in found.traces[0].of(Sharded)] == ["GRU"]


def test_a_submodule_that_is_replaced_after_sharding_is_attached(tmp_path: Path) -> None:
    body = (
        "model = Net()\nfully_shard(model)\nmodel.set_submodule('layers.0.linear', nn.GRU(8, 8))\n"
    )
    found = program(tmp_path, body)
    attached = list(found.traces[0].of(ModuleAttached))
    assert [[class_of(found, new) for new in e.new] for e in attached] == [["GRU"]]


BUILDERS = {
    "same name": "model = Net()\nmodel = FSDP(model)",
    "new name": "net = Net()\nmodel = FSDP(net)",
    "nested call": "model = FSDP(Net().to('cuda'))",
    "attribute": "class T:\n    def __init__(self):\n        self.model = FSDP(Net())\nmodel = T().model",
    "method": "class T:\n    def __init__(self, m):\n        self.m = m\n"
    "    def wrap(self):\n        self.m = FSDP(self.m)\n        return self.m\nmodel = T(Net()).wrap()",
    "function": "def build():\n    return FSDP(Net())\nmodel = build()",
    "default": "def build(wrap=FSDP):\n    return wrap(Net())\nmodel = build()",
    "keyword": "model = FSDP(module=Net())",
    "kwargs": "kwargs = dict(use_orig_params=True)\nmodel = FSDP(Net(), **kwargs)",
    "partial": "from functools import partial\nwrap = partial(FSDP, use_orig_params=True)\nmodel = wrap(Net())",
    "closure": "def outer():\n    net = Net()\n    def inner():\n        return FSDP(net)\n    return inner\n"
    "model = outer()()",
    "dict": "parts = {'model': FSDP(Net())}\nmodel = parts['model']",
    "tuple": "def build():\n    return FSDP(Net()), 1\nmodel, _ = build()",
    "walrus": "if (model := FSDP(Net())) is not None:\n    pass",
    "global": "model = None\ndef build():\n    global model\n    model = FSDP(Net())\nbuild()",
    "alias": "import torch.distributed.fsdp as f\nmodel = f.FullyShardedDataParallel(Net())",
    "module path": "model = torch.distributed.fsdp.FullyShardedDataParallel(Net())",
    "old path": "from torch.distributed.fsdp.fully_sharded_data_parallel import "
    "FullyShardedDataParallel as F\nmodel = F(Net())",
    "inside a function": "def build():\n    from torch.distributed.fsdp import "
    "FullyShardedDataParallel\n    return FullyShardedDataParallel(Net())\nmodel = build()",
    "async": "import asyncio\nasync def main():\n    return FSDP(Net())\nmodel = asyncio.run(main())\n"
    "async def other():\n    global model\n    model = await main()",
    "staticmethod": "class F:\n    @staticmethod\n    def wrap(m):\n        return FSDP(m)\nmodel = F.wrap(Net())",
    "classmethod": "class F:\n    @classmethod\n    def wrap(cls, m):\n        return FSDP(m)\nmodel = F.wrap(Net())",
    "property": "class T:\n    @property\n    def model(self):\n        return FSDP(Net())\nmodel = T().model",
    "inherited": "class A:\n    def setup(self):\n        self.model = FSDP(self.build())\n"
    "class B(A):\n    def build(self):\n        return Net()\nb = B()\nb.setup()\nmodel = b.model",
    "super": "class A:\n    def build(self):\n        return Net()\nclass B(A):\n    def build(self):\n"
    "        return FSDP(super().build())\nmodel = B().build()",
    "match": "import sys\nmatch sys.argv[1]:\n    case 'fsdp':\n        model = FSDP(Net())\n    case _:\n"
    "        model = Net()",
}


@pytest.mark.parametrize("code", [v for k, v in BUILDERS.items() if k != "async"],
                         ids=[k for k in BUILDERS if k != "async"])  # fmt: skip
def test_the_wrapped_model_reaches_the_optimizer(tmp_path: Path, code: str) -> None:
    found = program(tmp_path, f"{code}\noptim = torch.optim.SGD(model.parameters(), lr=0.1)\n")
    trace = found.traces[0]
    (wrapped,) = {e.module for e in trace.of(Wrapped)}
    (optimizer,) = trace.of(OptimizerBuilt)
    assert optimizer.modules == (wrapped,)
    assert trace.modules[trace.modules[wrapped].inner or ""].class_name == "Net"


def test_a_class_of_the_users_called_fsdp_is_not_torchs(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        class FSDP:
            def __init__(self, model):
                self.model = model

        model = FSDP(Net())
        """,
    )
    assert not list(events(found, Wrapped))


def test_a_model_of_an_unknown_library_is_one_module_everywhere(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained("x")
        optim = torch.optim.AdamW(model.parameters())
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
        """,
    )
    trace = found.traces[0]
    (optimizer,) = trace.of(OptimizerBuilt)
    root = list(trace.of(Sharded))[-1].module
    assert optimizer.modules == (root,)
    assert all(trace.contains(root, e.module) for e in trace.of(Sharded))
    assert not trace.modules[root].children_known


def test_recursion_ends(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        def shard(module):
            for child in module.children():
                shard(child)
            if isinstance(module, Block):
                fully_shard(module)

        model = Net()
        shard(model)
        fully_shard(model)
        """,
    )
    names = [class_of(found, e.module) for e in found.traces[0].of(Sharded)]
    assert names[-1] == "Net"


def test_modules_that_go_out_of_sight_are_marked(tmp_path: Path) -> None:
    found = program(
        tmp_path, "import helper_lib\nmodel = Net()\nhelper_lib.prepare(model)\nprint(model)\n"
    )
    (net,) = [m for m in found.traces[0].modules.values() if m.class_name == "Net"]
    assert net.escaped


def test_a_reference_to_the_parent_makes_no_circle(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        class Part(nn.Module):
            def __init__(self, parent):
                super().__init__()
                self.parent = parent

        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.part = Part(self)

        model = Whole()
        model.again = model
        fully_shard(model)
        """,
    )
    trace = found.traces[0]
    names = [trace.modules[m].class_name for m in trace.submodules(next(trace.of(Sharded)).module)]
    assert names == ["Whole", "Part"]


def test_the_elements_of_a_sequential_are_called(tmp_path: Path) -> None:
    found = program(tmp_path, "model = nn.Sequential(Block(), Block())\nmodel(torch.ones(1, 8))\n")
    trace = found.traces[0]
    names = [(class_of(found, e.module), e.inside) for e in trace.of(Called)]
    assert [name for name, _ in names] == ["Sequential", "Block", "Linear", "Block", "Linear"]
    assert names[1][1] == next(trace.of(Called)).index


def test_what_stands_for_the_parts_of_an_unknown_model_has_no_parts_itself(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        import zoo

        def shard(model, norm, block):
            for module in model.modules():
                if isinstance(module, norm):
                    fully_shard(module)
            for module in model.modules():
                if isinstance(module, block):
                    fully_shard(module)
            fully_shard(model)

        shard(zoo.make(), zoo.Norm, zoo.Block)
        """,
    )
    trace = found.traces[0]
    sharded = [e.module for e in trace.of(Sharded)]
    for earlier, later in itertools.pairwise(sharded):
        assert later == earlier or not trace.contains(earlier, later)


WHOLE_STATES = {
    "comprehension": "sd = {k: v.full_tensor() for k, v in model.state_dict().items()}",
    "conditional": "sd = {k: v.full_tensor() if isinstance(v, DTensor) else v\n"
    "      for k, v in model.state_dict().items()}",
    "the other way round": "sd = {k: v if not isinstance(v, DTensor) else v.full_tensor()\n"
    "      for k, v in model.state_dict().items()}",
    "loop": "sd = {}\nfor k, v in model.state_dict().items():\n    sd[k] = v.full_tensor()",
    "in place": "sd = model.state_dict()\nfor k in list(sd):\n    sd[k] = sd[k].full_tensor()",
    "helper": "def gather(state):\n    return {k: v.full_tensor().cpu() for k, v in state.items()}\n"
    "sd = gather(model.state_dict())",
    "tested in a loop": "sd = {}\nfor k, v in model.state_dict().items():\n"
    "    if isinstance(v, DTensor):\n        v = v.full_tensor()\n    sd[k] = v",
}


@pytest.mark.parametrize("code", WHOLE_STATES.values(), ids=WHOLE_STATES)
def test_a_state_that_is_gathered_by_hand_is_whole(tmp_path: Path, code: str) -> None:
    body = (
        "from torch.distributed.tensor import DTensor\nmodel = Net()\nfully_shard(model)\n"
        f"{code}\ntorch.save(sd, 'model.pt')\n"
    )
    for saved in events(program(tmp_path, body), Saved):
        assert Layout.SHARDED not in saved.layouts


@pytest.mark.parametrize("groups", ["state['param_groups']", "state.get('param_groups', [])"])
def test_the_settings_of_an_optimizer_are_not_sharded(tmp_path: Path, groups: str) -> None:
    body = (
        "model = Net()\nfully_shard(model)\noptimizer = torch.optim.AdamW(model.parameters())\n"
        f"state = optimizer.state_dict()\ntorch.save({{'groups': {groups}}}, 'groups.pt')\n"
    )
    for saved in events(program(tmp_path, body), Saved):
        assert Layout.SHARDED not in saved.layouts


def test_a_model_of_unknown_class_is_called_by_its_variable(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "import zoo\nstudent = zoo.Model.from_pretrained('x').to('cuda')\nfully_shard(student)\n",
    )
    assert [class_of(found, e.module) for e in found.traces[0].of(Sharded)] == ["student"]


def test_a_subclass_of_fsdp1_is_a_use_of_it(tmp_path: Path) -> None:
    found = program(tmp_path, "class Mine(FSDP):\n    pass\nmodel = Mine(Net())\n")
    assert [e.api for e in events(found, Fsdp1Used)] == ["subclass"]


MEMO = """
from functools import cache, cached_property, lru_cache
from torch.distributed.fsdp import fully_shard

class Trainer:
    def __init__(self, model):
        self._model = model

    @cached_property
    def model(self):
        return fully_shard(self._model)

    def step(self, x):
        return self.model(x)

@lru_cache(maxsize=None)
def shard(model):
    return fully_shard(model)

@cache
def model():
    return shard(Net())
"""


@pytest.mark.parametrize(
    ("body", "sharded"),
    [
        ("t = Trainer(Net())\nfor _ in range(2):\n    t.step(1)\nt.step(2)\n", 1),
        ("model()\nmodel()(1)\n", 1),
        ("a, b = Net(), Net()\nshard(a)\nshard(b)\nshard(a)\n", 2),
    ],
)
def test_what_is_cached_is_executed_once(tmp_path: Path, body: str, sharded: int) -> None:
    found = program(tmp_path, MEMO + body)
    assert len(list(found.traces[0].of(Sharded))) == sharded


def test_a_decorator_of_the_programs_own_may_be_called_cache(tmp_path: Path) -> None:
    own = "def cache(function):\n    return function\n\n@cache\ndef model():\n"
    found = program(tmp_path, own + "    return fully_shard(Net())\n\nmodel()\nmodel()\n")
    assert len(list(found.traces[0].of(Sharded))) == 2


def test_arguments_of_fully_shard_are_recorded_in_their_order(tmp_path: Path) -> None:
    names = ["shard_placement_fn", "ignored_params", "mp_policy", "offload_policy"]
    for number, order in enumerate((names, names[::-1])):
        folder = tmp_path / str(number)
        folder.mkdir()
        arguments = ", ".join(f"{name}=None" for name in order)
        found = program(folder, f"model = fully_shard(Net(), {arguments})\n")
        used = [event.api.rpartition(".")[2] for event in found.traces[0].of(Fsdp2Used)]
        assert len(used) > 1
        assert used == [name for name in order if name in used]

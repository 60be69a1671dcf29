"""Accelerate, Fabric, PEFT and functions that change a model without changing its structure."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, events, findings, program

from fsdplint.trace import (
    Called,
    Collective,
    Escaped,
    Layout,
    OptimizerBuilt,
    OptimizerStepped,
    Prepared,
    Ranks,
    RequiresGradSet,
    Saved,
    Sharded,
    StateTaken,
)

READERS = [
    "import wandb\nwandb.watch(model)",
    "import logging\nlogging.getLogger().info(model)",
    "from tqdm import tqdm\ntqdm.write(model)",
    "from accelerate.logging import get_logger\nget_logger('x').info(model)",
    "import torchinfo\ntorchinfo.summary(model)",
    "from torchsummary import summary\nsummary(model, (8,))",
    "from transformers.trainer_pt_utils import get_parameter_names\nget_parameter_names(model, [])",
]


@pytest.mark.parametrize("code", READERS)
def test_a_function_that_only_reads_hides_nothing(tmp_path: Path, code: str) -> None:
    found = program(tmp_path, f"model = Net()\n{code}\nfully_shard(model)\n")
    assert not list(events(found, Escaped))


def test_an_unknown_function_hides_what_it_does(tmp_path: Path) -> None:
    found = program(tmp_path, "import zoo\nmodel = Net()\nzoo.watch(model)\nfully_shard(model)\n")
    assert list(events(found, Escaped))


IN_PLACE = {
    "tensor parallel": "from torch.distributed.tensor.parallel import parallelize_module as f",
    "float8": "from torchao.float8 import convert_to_float8_training as f",
    "replicate": "from torch.distributed._composable.replicate import replicate as f",
}


@pytest.mark.parametrize("imported", IN_PLACE.values(), ids=IN_PLACE)
def test_a_function_returns_the_module_that_it_changes(tmp_path: Path, imported: str) -> None:
    found = program(tmp_path, f"{imported}\nmodel = f(Net(), plan)\nfully_shard(model)\n")
    (sharded,) = events(found, Sharded)
    assert class_of(found, sharded.module) == "Net"
    assert not list(events(found, Escaped))


PREPARED = {
    "accelerate": "from accelerate import Accelerator\na = Accelerator()\n"
    "model, optimizer, loader, scheduler = a.prepare(model, optimizer, loader, scheduler)\n",
    "fabric": "from lightning.fabric import Fabric\na = Fabric()\n"
    "model, optimizer = a.setup(model, optimizer)\n",
    "one by one": "from lightning import Fabric\na = Fabric()\n"
    "model = a.setup_module(model)\noptimizer = a.setup_optimizers(optimizer)\n",
}


@pytest.mark.parametrize("code", PREPARED.values(), ids=PREPARED)
def test_prepared_objects_stay_the_same(tmp_path: Path, code: str) -> None:
    body = (
        "model = Net()\noptimizer = torch.optim.SGD(model.parameters())\n"
        f"{code}a.backward(model(x))\noptimizer.step()\n"
    )
    found = program(tmp_path, body)
    trace = found.traces[0]
    (built,) = trace.of(OptimizerBuilt)
    assert not built.complete
    outer = [event for event in trace.of(Called) if event.inside is None]
    assert [event.module for event in outer] == list(built.modules)
    assert [event.optimizer for event in trace.of(OptimizerStepped)] == [built.optimizer]
    assert [event.module for event in trace.of(Escaped)][:1] == list(built.modules)


@pytest.mark.parametrize("name", ["dispatch_model", "load_checkpoint_and_dispatch"])
def test_a_model_that_accelerate_places(tmp_path: Path, name: str) -> None:
    found = program(
        tmp_path,
        f"from accelerate import {name}, init_empty_weights\n"
        f"with init_empty_weights():\n    model = Net()\nmodel = {name}(model, 'x')\n"
        "fully_shard(model)\n",
    )
    (sharded,) = events(found, Sharded)
    assert class_of(found, sharded.module) == "Net"


def test_the_model_without_its_wrapper(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "from accelerate import Accelerator\nmodel = FSDP(Net())\n"
        "inner = Accelerator().unwrap_model(model)\ninner.embed(x)\n",
    )
    assert [class_of(found, e.module) for e in events(found, Called)] == ["Embedding"]


def test_a_collective_of_accelerate_on_one_rank(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "from accelerate import Accelerator\naccelerator = Accelerator()\n"
        "if accelerator.is_main_process:\n    accelerator.wait_for_everyone()\n",
    )
    (event,) = found.traces[0].of(Collective)
    assert event.ranks.partial and event.api == "Accelerator.wait_for_everyone"


ADAPTERS = (
    "from peft import LoraConfig, get_peft_model\nmodel = get_peft_model(base, LoraConfig())\n"
)


def test_adapters_are_put_around_the_model(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        f"base = Net()\n{ADAPTERS}for layer in model.base_model.model.layers:\n"
        "    fully_shard(layer)\nfully_shard(model)\nmodel(x)\n",
    )
    trace = found.traces[0]
    *blocks, root = trace.of(Sharded)
    assert class_of(found, root.module) == "PeftModel"
    assert {class_of(found, block.module) for block in blocks} == {"Block"}
    assert all(trace.contains(root.module, block.module) for block in blocks)
    called = [class_of(found, event.module) for event in trace.of(Called)]
    assert called[0] == "PeftModel" and "Block" in called
    (frozen,) = trace.of(RequiresGradSet)
    assert class_of(found, frozen.modules[0]) == "Net"
    assert not list(trace.of(Escaped))


def test_the_attributes_of_the_model_are_those_of_its_adapters(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        f"base = Net()\n{ADAPTERS}fully_shard(model.head)\nfully_shard(model.model.embed)\n",
    )
    assert [class_of(found, e.module) for e in events(found, Sharded)] == ["Linear", "Embedding"]


@pytest.mark.parametrize("method", ["merge_and_unload", "unload", "get_base_model"])
def test_the_model_inside_of_its_adapters(tmp_path: Path, method: str) -> None:
    found = program(tmp_path, f"base = Net()\n{ADAPTERS}fully_shard(model.{method}())\n")
    assert [class_of(found, e.module) for e in events(found, Sharded)] == ["Net"]


def test_adapters_of_a_library_model(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "from transformers import AutoModelForCausalLM\n"
        "from transformers.models.llama.modeling_llama import LlamaDecoderLayer\n"
        f"base = AutoModelForCausalLM.from_pretrained('x')\n{ADAPTERS}"
        "for m in model.modules():\n    if isinstance(m, LlamaDecoderLayer):\n"
        "        fully_shard(m)\nfully_shard(model)\n",
    )
    names = [class_of(found, e.module) for e in events(found, Sharded)]
    assert names == ["LlamaDecoderLayer", "PeftModel"]


def test_quantized_models_are_frozen_and_stay_the_same(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "from peft import prepare_model_for_kbit_training\n"
        "model = prepare_model_for_kbit_training(Net())\nfully_shard(model)\n",
    )
    (sharded,) = events(found, Sharded)
    assert class_of(found, sharded.module) == "Net"
    assert all(info.frozen for info in found.traces[0].modules.values())


@pytest.mark.parametrize("test, collectives", [("dist.get_rank() == 0", 0), ("args.sync", 1)])
def test_a_function_that_unknown_code_gets_on_one_rank(
    tmp_path: Path, test: str, collectives: int
) -> None:
    body = f"import zoo\nif {test}:\n    zoo.run(lambda: dist.barrier())\nfully_shard(Net())\n"
    found = program(tmp_path, body)
    assert len(list(found.traces[0].of(Collective))) == collectives


@pytest.mark.parametrize("annotation", ["Fabric", "L.Fabric"])
def test_a_parameter_of_a_library_class(tmp_path: Path, annotation: str) -> None:
    found = program(
        tmp_path,
        "import lightning as L\nfrom lightning import Fabric\n"
        f"def train(fabric: {annotation}, model):\n"
        "    model = fabric.setup(model)\n    if fabric.global_rank == 0:\n"
        "        fabric.barrier()\n    fully_shard(model)\n",
    )
    collectives = list(events(found, Collective))
    assert collectives and all(event.ranks.partial for event in collectives)


FRAMEWORKS = {
    "a strategy": (
        "from lightning.fabric import Fabric\nfrom lightning.fabric.strategies import FSDPStrategy\n"
        "a = Fabric(strategy=FSDPStrategy(), devices=2)\nmodel = a.setup_module(Net())"
    ),
    "a name": "import lightning as L\na = L.Fabric(strategy='fsdp')\nmodel = a.setup_module(Net())",
    "with an optimizer": (
        "from lightning.fabric import Fabric\nfrom lightning.fabric.strategies import FSDPStrategy\n"
        "a = Fabric(strategy=FSDPStrategy(), num_nodes=2, devices=1)\nmodel = Net()\n"
        "model, optimizer = a.setup(model, torch.optim.SGD(model.parameters()))"
    ),
    "a plugin": (
        "from accelerate import Accelerator, FullyShardedDataParallelPlugin\n"
        "a = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin())\nmodel = a.prepare(Net())"
    ),
}
SETTINGS_WITHOUT = {
    "one device": "import lightning as L\na = L.Fabric(strategy='fsdp', devices=1)\n",
    "whole models": (
        "import lightning as L\nfrom lightning.fabric.strategies import FSDPStrategy\n"
        "a = L.Fabric(strategy=FSDPStrategy(sharding_strategy='NO_SHARD'))\n"
    ),
    "another strategy": "import lightning as L\na = L.Fabric(strategy='ddp')\n",
    "an unknown one": "import lightning as L\na = L.Fabric(strategy=args.strategy)\n",
}


@pytest.mark.parametrize("setup", FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_a_model_that_a_framework_shards_needs_all_ranks(tmp_path: Path, setup: str) -> None:
    body = f"{setup}\nif dist.get_rank() == 0:\n    model(torch.ones(2)).sum().backward()\n"
    (finding,) = findings(program(tmp_path, body), "FSDP501")
    assert "the forward of sharded `Net`" in finding.message


@pytest.mark.parametrize("setup", SETTINGS_WITHOUT.values(), ids=SETTINGS_WITHOUT)
def test_settings_of_a_framework_that_shard_nothing(tmp_path: Path, setup: str) -> None:
    body = f"{setup}model = a.setup_module(Net())\nif dist.get_rank() == 0:\n    model(torch.ones(2))\n"
    assert not findings(program(tmp_path, body), "FSDP501")


def test_the_state_of_a_model_that_fabric_shards(tmp_path: Path) -> None:
    body = f"{FRAMEWORKS['a name']}\nif a.is_global_zero:\n    torch.save(model.state_dict(), 'm.pt')\n"
    (finding,) = findings(program(tmp_path, body), "FSDP501")
    assert "`state_dict`" in finding.message


@pytest.mark.parametrize("name", ["save", "load"])
def test_a_checkpoint_of_fabric_on_one_rank(tmp_path: Path, name: str) -> None:
    body = f"""{FRAMEWORKS["a name"]}
state = {{"model": model, "step": 0}}
if a.global_rank == 0:
    a.{name}("checkpoint", state)
"""
    (finding,) = findings(program(tmp_path, body), "FSDP501")
    assert f"`Fabric.{name}`" in finding.message


FABRIC = """
from lightning.fabric import Fabric
from lightning.fabric.strategies import FSDPStrategy
a = Fabric(strategy=FSDPStrategy(), devices=2)
model = a.setup_module(Net())
optimizer = a.setup_optimizers(torch.optim.SGD(model.parameters(), lr=0.1))
every = int(__import__("os").environ["EVERY"])
for step in range(8):
"""
CLIPPED_BY_FABRIC = "a.clip_gradients(model, optimizer, max_norm=1.0)"
CLIPPED_BY_TORCH = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


def _step(body: str, *, before: str = "", after: str = "") -> str:
    lines = (*body.split("; "), before, "optimizer.step()", after, "optimizer.zero_grad()")
    return FABRIC + "".join(f"    {line}\n" for line in lines if line)


def _pause(enabled: str) -> str:
    turns = "for turn in range(every):;   with a.no_backward_sync(model{}):;     "
    return turns.format(enabled).replace(":;", ":\n    ") + "a.backward(model(x))"


def test_gradients_of_fabric_that_torch_clips(tmp_path: Path) -> None:
    body = _step("a.backward(model(x))", before=CLIPPED_BY_TORCH)
    (finding,) = findings(program(tmp_path, body), "FSDP404")
    assert "fabric.clip_gradients" in finding.help
    assert finding.fix is None


def test_gradients_that_fabric_clips(tmp_path: Path) -> None:
    found = program(tmp_path, _step("a.backward(model(x))", before=CLIPPED_BY_FABRIC))
    assert not findings(found, "FSDP404")
    assert not findings(found, "FSDP416")


def test_the_clipping_of_fabric_is_no_method_of_fsdp1(tmp_path: Path) -> None:
    body = "from lightning.fabric import Fabric\na = Fabric()\nmodel = FSDP(Net())\n"
    body += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n" + CLIPPED_BY_FABRIC
    assert not findings(program(tmp_path, body), "FSDP204")


@pytest.mark.parametrize("clipping", [CLIPPED_BY_FABRIC, CLIPPED_BY_TORCH])
def test_fabric_clips_after_the_step(tmp_path: Path, clipping: str) -> None:
    body = _step("a.backward(model(x))", after=clipping)
    assert findings(program(tmp_path, body), "FSDP416")


@pytest.mark.parametrize("enabled", ["", ", enabled=True", ", turn < every", ", enabled=every > 1"])
def test_fabric_never_synchronises(tmp_path: Path, enabled: str) -> None:
    (finding,) = findings(program(tmp_path, _step(_pause(enabled))), "FSDP403")
    assert "`Net`" in finding.message


@pytest.mark.parametrize(
    "enabled", [", enabled=False", ", enabled=turn < every - 1", ", turn % every != 0"]
)
def test_fabric_synchronises_the_last_backward(tmp_path: Path, enabled: str) -> None:
    assert not findings(program(tmp_path, _step(_pause(enabled))), "FSDP403")


def test_a_flag_of_a_caller_may_synchronise(tmp_path: Path) -> None:
    loop = _step(_pause(", enabled=paused")).partition("for step")
    body = f"{loop[0]}def train(paused):\n    for step{loop[2]}".replace("\n    ", "\n        ")
    assert not findings(program(tmp_path, body), "FSDP403")


def test_fabric_launches_a_function(tmp_path: Path) -> None:
    body = """
    from lightning.fabric import Fabric
    from lightning.fabric.strategies import FSDPStrategy

    def main(fabric, path, *, every):
        model = fabric.setup_module(Net())
        if fabric.is_global_zero:
            fabric.save(path, {"model": model, "every": every})

    Fabric(strategy=FSDPStrategy(), devices=2).launch(main, "checkpoint", every=2)
    """
    (finding,) = findings(program(tmp_path, body), "FSDP501")
    assert "`Fabric.save`" in finding.message


def test_fabric_launches_nothing(tmp_path: Path) -> None:
    body = FRAMEWORKS["a name"].replace("\nmodel", "\na.launch()\nmodel")
    found = program(tmp_path, f"{body}\nmodel(torch.ones(2)).sum().backward()\n")
    assert not findings(found, "FSDP501")


PREPARED = (
    "from accelerate import Accelerator, FullyShardedDataParallelPlugin\n"
    "accelerator = Accelerator(\n"
    "    fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version={version}))\n"
    "model = accelerator.prepare(Net())\ninner = accelerator.unwrap_model(model)\n"
)


@pytest.mark.parametrize(
    ("version", "layout", "collective"), [(1, Layout.UNKNOWN, True), (2, Layout.SHARDED, False)]
)
@pytest.mark.parametrize("save", ["accelerator.save(inner.state_dict(), 'f')",
                                  "inner.save_pretrained('f')"])  # fmt: skip
def test_a_state_of_a_model_that_accelerate_shards(
    tmp_path: Path, version: int, layout: Layout, collective: bool, save: str
) -> None:
    found = program(tmp_path, PREPARED.format(version=version) + save)
    (state,) = events(found, StateTaken)
    assert (state.layout, state.collective) == (layout, collective)
    (saved,) = events(found, Saved)
    assert saved.states == (state.state,)
    assert saved.ranks is (Ranks.ONE if "accelerator" in save else Ranks.ALL)
    assert state.ranks is Ranks.ALL


def test_the_state_of_an_optimizer_that_accelerate_prepares(tmp_path: Path) -> None:
    code = PREPARED.replace("prepare(Net())", "prepare(net)").replace("model = ", "{}model = ")
    made = "net = Net()\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    for version, layout in ((1, Layout.LOCAL), (2, Layout.SHARDED)):
        text = code.format(made, version=version)
        found = program(tmp_path, f"{text}torch.save(optimizer.state_dict(), 'o.pt')")
        (state,) = events(found, StateTaken)
        assert state.layout is layout
        assert findings(found, "FSDP301")
    whole = text.replace("fsdp_version=2", "fsdp_version=1, sharding_strategy='NO_SHARD'")
    found = program(tmp_path, f"{whole}torch.save(optimizer.state_dict(), 'o.pt')")
    assert not findings(found, "FSDP301")


def test_an_average_of_a_model_that_accelerate_shards(tmp_path: Path) -> None:
    code = (
        "import copy\nfrom accelerate import Accelerator, FullyShardedDataParallelPlugin\n"
        "accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))\n"
        "net = Net()\naverage = copy.deepcopy(net)\nmodel = accelerator.prepare(net)\n"
        "accelerator.backward(model(x).mean())\nwith torch.no_grad():\n"
        "    for kept, new in zip(average.parameters(), model.parameters()):\n"
        "        kept.lerp_(new, 0.1)\n"
    )
    assert findings(program(tmp_path, code), "FSDP307")
    assert not findings(program(tmp_path, code.replace("fsdp_version=2", "")), "FSDP307")


def test_the_main_process_of_each_machine(tmp_path: Path) -> None:
    code = PREPARED.format(version=2) + (
        "if accelerator.is_local_main_process:\n    accelerator.get_state_dict(model)\n"
    )
    assert findings(program(tmp_path, code), "FSDP501")


FABRIC_DATA = (
    "from lightning.fabric import Fabric\nfrom lightning.fabric.strategies import FSDPStrategy\n"
    "fabric = Fabric(devices=4, strategy=FSDPStrategy())\nfabric.launch()\n"
    "model = fabric.setup_module(Net())\n"
    "loader = fabric.setup_dataloaders(torch.utils.data.DataLoader(data(), batch_size=4){})\n"
    "for batch in loader:\n    loss = model(batch).mean()\n"
    "    if torch.isnan(loss):\n        continue\n    fabric.backward(loss)\n"
)


@pytest.mark.parametrize(("option", "number"), [("", 1), (", use_distributed_sampler=False", 0)])
def test_the_loaders_of_fabric_give_each_rank_its_own_data(
    tmp_path: Path, option: str, number: int
) -> None:
    found = program(tmp_path, FABRIC_DATA.format(option))
    assert len(findings(found, "FSDP501")) == number


def test_the_version_that_the_environment_chooses(tmp_path: Path) -> None:
    found = program(tmp_path, PREPARED.replace("fsdp_version={version}", "") + "inner.state_dict()")
    (state,) = events(found, StateTaken)
    assert (state.layout, state.collective) == (Layout.UNKNOWN, False)
    assert not list(events(found, Prepared))

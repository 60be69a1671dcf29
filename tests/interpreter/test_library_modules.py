"""Models, layers and base classes of libraries whose code is not followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, events, findings, program

from fsdplint.interpreter.library_classes import builds_model, is_module_class
from fsdplint.rules.fsdp103_optimizer_before_shard import OptimizerBeforeShard
from fsdplint.trace import (
    Escaped,
    ModuleBuilt,
    OptimizerBuilt,
    RequiresGradSet,
    Sharded,
    StateLoaded,
    Wrapped,
)

MODULE_CLASSES = [
    "transformers.AutoModelForCausalLM",
    "transformers.BertModel",
    "transformers.GPT2LMHeadModel",
    "transformers.CLIPTextModelWithProjection",
    "transformers.LlamaForCausalLM",
    "transformers.modeling_utils.PreTrainedModel",
    "transformers.models.llama.modeling_llama.LlamaDecoderLayer",
    "transformers.models.llama.modeling_llama.LlamaForCausalLM",
    "transformers.models.llava.modeling_llava.LlavaMultiModalProjector",
    "transformers.models.clip.modeling_clip.CLIPVisionTransformer",
    "transformers.models.bert.modeling_bert.BertEmbeddings",
    "diffusers.AutoencoderKL",
    "diffusers.models.UNet2DConditionModel",
    "peft.PeftModel",
    "timm.models.vision_transformer.Block",
    "torchvision.models.ResNet",
    "fairscale.nn.model_parallel.layers.ColumnParallelLinear",
    "bitsandbytes.nn.Linear4bit",
    "torch.nn.Linear",
]
OTHER_CLASSES = [
    "transformers.AutoConfig",
    "transformers.AutoTokenizer",
    "transformers.AutoProcessor",
    "transformers.DataCollatorForLanguageModeling",
    "transformers.TFBertModel",
    "transformers.Trainer",
    "transformers.TrainingArguments",
    "transformers.modeling_outputs.CausalLMOutputWithPast",
    "diffusers.AutoencoderKLOutput",
    "diffusers.DDPMScheduler",
    "diffusers.StableDiffusionControlNetPipeline",
    "peft.LoraConfig",
    "torchvision.models.ResNet50_Weights",
    "torch.nn.Parameter",
    "torch.nn.CrossEntropyLoss",
    "torch.nn.DataParallel",
    "os.PathLike",
]


@pytest.mark.parametrize("name", MODULE_CLASSES)
def test_a_class_of_modules(name: str) -> None:
    assert is_module_class(name)


@pytest.mark.parametrize("name", OTHER_CLASSES)
def test_a_class_of_other_objects(name: str) -> None:
    assert not is_module_class(name)


def test_functions_that_build_models() -> None:
    names = [
        "get_model",
        "resnet50",
        "detection.fasterrcnn_resnet50_fpn",
        "get_weight",
        "list_models",
    ]
    built = [builds_model(f"torchvision.models.{name}") for name in names]
    assert built == [True, True, True, False, False]
    assert builds_model("timm.create_model") and not builds_model("timm.list_models")


BUILT = {
    "from transformers import AutoModelForCausalLM\n"
    "model = AutoModelForCausalLM.from_pretrained('x')\n": "AutoModelForCausalLM",
    "from transformers import AutoModelForCausalLM\n"
    "model = AutoModelForCausalLM.from_config(config)\n": "AutoModelForCausalLM",
    "from transformers import LlamaForCausalLM\nmodel = LlamaForCausalLM(config)\n": "LlamaForCausalLM",
    "import transformers\nmodel = transformers.BertModel.from_pretrained('x')\n": "BertModel",
    "import timm\nmodel = timm.create_model('vit')\n": "model",
    "import torchvision\nmodel = torchvision.models.resnet50()\n": "model",
    "from torchvision.models import resnet50\nmodel = resnet50(weights=None)\n": "model",
    "import transformers\nkinds = {'a': transformers.LlamaForCausalLM}\n"
    "model = kinds['a'].from_pretrained('x')\n": "LlamaForCausalLM",
}


@pytest.mark.parametrize("code", BUILT)
def test_a_model_of_a_library_is_a_module(tmp_path: Path, code: str) -> None:
    body = (
        "optimizer = torch.optim.SGD(model.parameters())\nfully_shard(model)\n"
        "model(x).sum().backward()\noptimizer.step()\n"
    )
    found = program(tmp_path, code + body)
    trace = found.traces[0]
    assert [class_of(found, e.module) for e in trace.of(ModuleBuilt)] == [BUILT[code]]
    (optimizer,) = trace.of(OptimizerBuilt)
    (sharded,) = trace.of(Sharded)
    assert optimizer.modules == (sharded.module,) and optimizer.complete
    assert not trace.modules[sharded.module].children_known
    assert list(OptimizerBeforeShard().check(trace))


def test_a_tokenizer_and_a_tuple_are_no_modules(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "from transformers import AutoModel, AutoTokenizer\n"
        "tokenizer = AutoTokenizer.from_pretrained('x')\n"
        "model, info = AutoModel.from_pretrained('x', output_loading_info=True)\n",
    )
    assert not list(events(found, ModuleBuilt))


def test_the_blocks_of_a_library_model_are_its_parts(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "from transformers import AutoModelForCausalLM\n"
        "from transformers.models.llama.modeling_llama import LlamaDecoderLayer\n"
        "model = AutoModelForCausalLM.from_pretrained('x')\n"
        "for m in model.modules():\n    if isinstance(m, LlamaDecoderLayer):\n        fully_shard(m)\n"
        "fully_shard(model)\n",
    )
    trace = found.traces[0]
    blocks = [e.module for e in trace.of(Sharded)]
    assert [class_of(found, block) for block in blocks] == [
        "LlamaDecoderLayer",
        "AutoModelForCausalLM",
    ]
    assert trace.contains(blocks[-1], blocks[0])


STRUCTURES = {
    "class Mine(nn.Linear):\n    pass\n": (True, True),
    "class Mine(nn.Dropout):\n    pass\n": (True, False),
    "class Mine(nn.LayerNorm):\n    pass\n": (True, None),
    "class Mine(nn.Sequential):\n    pass\n": (True, False),
    "import abc\nclass Mine(nn.Module, abc.ABC):\n    pass\n": (True, False),
    "from transformers import PreTrainedModel\nclass Mine(PreTrainedModel):\n    pass\n": (
        True,
        False,
    ),
    "from transformers import LlamaForCausalLM\nclass Mine(LlamaForCausalLM):\n    pass\n": (
        False,
        None,
    ),
    "from bitsandbytes.nn import Linear4bit\nclass Mine(Linear4bit):\n    pass\n": (True, True),
    "from zoo import Mixin\nclass Mine(nn.Module, Mixin):\n    pass\n": (False, None),
}


@pytest.mark.parametrize("code", STRUCTURES)
def test_a_class_has_what_its_library_bases_have(tmp_path: Path, code: str) -> None:
    found = program(tmp_path, code + "model = Mine()\nfully_shard(model)\n")
    (built,) = events(found, ModuleBuilt)
    info = found.traces[0].modules[built.module]
    assert (info.children_known, info.own_parameters) == STRUCTURES[code]


@pytest.mark.parametrize("body, container", [("pass", True), ("def forward(self, x): pass", False)])
def test_a_list_of_modules_with_a_forward_is_no_container(
    tmp_path: Path, body: str, container: bool
) -> None:
    found = program(tmp_path, f"class Mine(nn.ModuleList):\n    {body}\nfully_shard(Mine([]))\n")
    (built,) = events(found, ModuleBuilt)
    assert found.traces[0].modules[built.module].container is container


def test_a_part_that_a_base_class_makes(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "from transformers import LlamaForCausalLM\n"
        "class Mine(LlamaForCausalLM):\n"
        "    def freeze(self):\n"
        "        for p in self.model.parameters():\n            p.requires_grad_(False)\n"
        "model = Mine.from_pretrained('x')\nmodel.freeze()\n"
        "for layer in model.model.layers:\n    fully_shard(layer)\nfully_shard(model)\n",
    )
    trace = found.traces[0]
    (frozen,) = (e for e in trace.of(RequiresGradSet))
    *_, root = trace.of(Sharded)
    assert len(list(trace.of(Sharded))) == 2
    assert class_of(found, root.module) == "Mine"
    assert trace.contains(root.module, frozen.modules[0])


LAYERS = {
    "known": "from fairscale.nn.model_parallel.layers import ColumnParallelLinear as Layer",
    "unknown": "from zoo.layers import FusedLayer as Layer",
}


@pytest.mark.parametrize("imported", LAYERS.values(), ids=LAYERS)
def test_a_model_of_library_layers_has_parameters(tmp_path: Path, imported: str) -> None:
    found = program(
        tmp_path,
        f"{imported}\nclass Mine(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = Layer(8, 8)\nmodel = Mine()\nfully_shard(model)\n",
    )
    trace = found.traces[0]
    (sharded,) = trace.of(Sharded)
    parts = [trace.modules[part] for part in trace.submodules(sharded.module)]
    assert any(part.own_parameters is not False or not part.children_known for part in parts)


@pytest.mark.parametrize(
    "test, holds",
    [
        ("any([False, True, unknown()])", True),
        ("all([True, unknown(), False])", False),
        ("any(isinstance(m, Block) for m in Net().modules())", True),
        ("all([True, True])", True),
        ("any([])", False),
    ],
)
def test_any_and_all_of_known_elements(tmp_path: Path, test: str, holds: bool) -> None:
    found = program(tmp_path, f"from zoo import unknown\nif {test}:\n    fully_shard(Net())\n")
    assert [bool(list(trace.of(Sharded))) for trace in found.traces] == [holds]


@pytest.mark.parametrize(
    "context",
    [
        'model.no_sync() if step % 4 and hasattr(model, "no_sync") else nullcontext()',
        'getattr(model, "no_sync", nullcontext)()',
    ],
)
def test_a_sharded_model_of_a_library_has_no_method_of_a_wrapper(
    context: str, tmp_path: Path
) -> None:
    found = program(
        tmp_path,
        f"""
        from contextlib import nullcontext
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("gpt2")
        fully_shard(model)
        for step, batch in enumerate(batches):
            with {context}:
                model(batch).loss.backward()
        """,
    )
    assert not findings(found, "FSDP401")


def test_the_configuration_of_a_model_is_no_part_of_it(tmp_path: Path) -> None:
    """A function that gets a setting of a model of Transformers does not get the model."""
    body = """
        from transformers import AutoTokenizer, PretrainedConfig, PreTrainedModel

        class Own(PreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.layer = nn.Linear(8, 8)

            def add_tokens(self, tokenizer):
                self.config.image_id = tokenizer.convert(self.config.image)

        model = Own(PretrainedConfig())
        model.add_tokens(AutoTokenizer.from_pretrained("a"))
        fully_shard(model)
    """
    assert not list(events(program(tmp_path, body), Escaped))


LOADED_ON_ONE_RANK = """
import somelib

dist.init_process_group("gloo")
model = somelib.get_model()
if dist.get_rank() == 0:
    model.load_state_dict({call})
model = FSDP(model)
optimizer = torch.optim.AdamW(model.parameters())
for batch in somelib.batches():
    model(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("call", "certain"),
    [
        ("torch.load('w.pt'), strict=False", True),
        ("torch.load('w.pt'), assign=True", True),
        ("torch.load('w.pt'), False", True),
        ("torch.load('w.pt')", False),  # optimizers have this method, too
    ],
)
def test_an_object_that_loads_a_state_as_only_modules_do(
    tmp_path: Path, call: str, certain: bool
) -> None:
    found = program(tmp_path, LOADED_ON_ONE_RANK.replace("{call}", call))
    (built,) = [e for e in events(found, Wrapped)][:1]
    loads = [e for e in events(found, StateLoaded) if e.into == built.inner]
    assert bool(loads) == certain
    assert bool(findings(found, "FSDP318")) == certain

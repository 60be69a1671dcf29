"""The nn.Module classes of libraries, by their dotted names.

The patterns hold for all classes that the libraries export: each class that they match derives from
nn.Module or, such as `AutoModel`, makes an object of a class that does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from fsdplint.interpreter.models.nn_classes import COMPOSITE, CONTAINERS, PARAMETERIZED, PARTS
from fsdplint.trace import Sharding

# Classes of sharded models, as annotations name them.
SHARDED_CLASSES = {
    "torch.distributed.fsdp.FullyShardedDataParallel": Sharding.FSDP1,
    "torch.distributed.fsdp.FSDPModule": Sharding.FSDP2,
}

# A dotted name of one package: its parts before the class.
_IN = r"(\w+\.)*"
# Layers of known libraries that register their own parameters and have no submodules.
_LAYERS = re.compile(
    r"fairscale\.nn\.model_parallel\.layers\.\w+(Linear|Embedding)"
    rf"|bitsandbytes\.nn\.{_IN}(Linear|StableEmbedding|Embedding)\w*"
    rf"|apex\.normalization\.{_IN}\w*Norm"
)
_MODELS = re.compile(
    rf"transformers\.(models\.{_IN}|modeling_utils\.)?"
    r"(AutoModel\w*|\w+(Model|ModelWithProjection)|[A-Z]\w+For[A-Z]\w+)"
    r"|transformers\.models\.\w+\.modeling_\w+"
    r"\.\w+(Layer|Block|Attention|MLP|Norm|Encoder|Decoder|Transformer|Embeddings?|Pooler|Projector)"
    rf"|peft\.{_IN}(Auto)?Peft\w*Model\w*"
    rf"|diffusers\.{_IN}([A-Z]\w+Model|(Asymmetric)?Autoencoder[A-Z]\w*)"
    rf"|trl\.{_IN}AutoModelFor\w+WithValueHead"
    rf"|timm\.(models|layers)\.{_IN}[A-Z]\w*"
    rf"|torchvision\.models\.{_IN}[A-Z]\w*"
)
# Classes beside the models: of other frameworks, outputs, settings, parts of classes.
_OTHERS = re.compile(
    r"^(TF|Flax|Onnx|EMAModel|DataCollator)"
    r"|(Auto(Fn|Function)|Builder|Cache|CacheLayer|Cfg|Collator\w*|Config|Extractor|Fn|LogModel|Format|Hooks|Info"
    r"|Interpolator|Iterator|Mixin|Output\w*|Pipeline|Processor|SlidingWindowLayer|Step|Tokenizer\w*|Weights)$"
)
# Base classes of the user's models that have no parameters and no submodules of their own.
_BARE = re.compile(
    r"torch\.nn\.Module|abc\.ABC|typing\.(Generic|Protocol)"
    rf"|transformers\.{_IN}(\w*PreTrainedModel|GenerationMixin)"
    rf"|diffusers\.{_IN}(ModelMixin|ConfigMixin)"
    rf"|huggingface_hub\.{_IN}PyTorchModelHubMixin"
)
_TORCH = re.compile(
    r"torch\.nn\.(?!DataParallel$|Parameter$|Buffer$|Uninitialized|\w*Loss$)[A-Z]\w*"
)
_BASES = re.compile(
    r"(pytorch_lightning|lightning(\.pytorch)?)\.LightningModule"
    rf"|diffusers\.{_IN}ModelMixin"
)
# Functions that build a model.
_BUILDERS = re.compile(
    rf"timm\.{_IN}create_model"
    r"|torchvision\.models\."
    r"(?!(\w+\.)*(_?utils|feature_extraction)\.|(\w+\.)*(get_(?!model$)|list_|register_|_))"
    rf"{_IN}[a-z]\w*"
)
# Libraries, and functions of libraries, that change no model, optimizer or data that they get.
_READERS = re.compile(
    r"(aim|cloudpickle|comet_ml|einops|inspect|json|logging|loguru|math|mlflow|neptune|numpy|opt_einsum|os|pickle"
    r"|pprint|psutil|rich|sys|tabulate|tensorboardX|time|tqdm|wandb|torch\.utils\.tensorboard"
    r"|(accelerate|transformers(\.utils)?)\.logging)\..*"
    r"|builtins\.(bool|format|hash|id|len|print|repr|str)"
    r"|transformers\.(trainer|trainer_pt_utils)\.get_parameter_names"
    r"|peft\.(utils\.)?get_peft_model_state_dict"
    r"|xformers\.profiler\..*|fvcore\.nn\.(\w+\.)*parameter_count\w*"
    r"|(torchinfo|torchsummary)\.(\w+\.)*summary"
)


_REPORTS = re.compile(
    r"add_scalars?|info|debug|warning|warn|error|critical|exception|log\w*|print\w*"
)


@lru_cache(maxsize=4096)
def is_module_class(name: str) -> bool:
    """Whether the objects of a library class are modules."""
    if _TORCH.fullmatch(name) or _BASES.fullmatch(name):
        return True
    last = name.rpartition(".")[2]
    if not last[:1].isupper() or _OTHERS.search(last):
        return False
    return bool(_MODELS.fullmatch(name) or _LAYERS.fullmatch(name))


@lru_cache(maxsize=4096)
def is_bare_base(name: str) -> bool:
    """Whether a library class is only a base of models: it derives from no model or layer."""
    return _BARE.fullmatch(name) is not None


@lru_cache(maxsize=4096)
def is_layer(name: str) -> bool:
    """Whether a library class is a layer with parameters and without submodules."""
    return bool(_LAYERS.fullmatch(name))


def inherited_structure(bases: Iterable[str]) -> tuple[bool, bool | None]:
    """What a class has from its library bases.

    Returns:
        Whether all submodules of the bases are known (there are none), and whether the bases
        register parameters (None: unknown).
    """
    return _inherited_structure(tuple(bases))


@lru_cache(maxsize=1024)
def _inherited_structure(bases: tuple[str, ...]) -> tuple[bool, bool | None]:
    known, own = True, False
    doubtful = False
    for base in bases:
        last = base.rpartition(".")[2]
        if _BARE.fullmatch(base):
            continue
        if is_layer(base):
            own = True
        elif _TORCH.fullmatch(base):
            known = known and last not in {*CONTAINERS, *COMPOSITE, *PARTS}
            parameterized = PARAMETERIZED.search(last) is not None
            own = own or (parameterized and "Norm" not in last)
            doubtful = doubtful or parameterized
        else:
            known, doubtful = False, True
    return known, True if own else (None if doubtful else False)


def may_be_module(library: str, origin: str) -> bool:
    """Whether an unknown value may be a module: it is an object of a library class.

    library: the library function that returned it, or whose result it was read from; origin: the
        path of the value.
    """
    last = library.rpartition(".")[2]
    return origin == f"{library}()" and last[:1].isupper() and not _OTHERS.search(last)


@lru_cache(maxsize=4096)
def only_reads(name: str) -> bool:
    """Whether a library function, or a method of what it returned, only reads its arguments."""
    return bool(_READERS.fullmatch(name))


def is_report(name: str) -> bool:
    """Whether functions of this name show their arguments, and select nothing."""
    return bool(_REPORTS.fullmatch(name))


def initialises_at_random(base: str) -> bool:
    """Whether the constructor of a library class loads no weights."""
    return base == "object" or base.startswith(("torch.nn.", "transformers."))


def builds_model(name: str) -> bool:
    """Whether a library function returns a new model."""
    return bool(_BUILDERS.fullmatch(name))

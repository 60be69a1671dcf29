"""FSDP settings of frameworks: Accelerate plugin, Transformers arguments, Lightning strategies."""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.lightning_names import FABRICS, TRAINERS
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import Const, Dict, Partial, Sequence, Symbol, Unknown, Value
from fsdplint.trace import FrameworkConfigured, Site

_ACCELERATE = ("accelerate", "accelerate.utils", "accelerate.utils.dataclasses")
_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
# The arguments of TRL extend those of Transformers.
_TRL = ("SFTConfig", "DPOConfig", "GRPOConfig", "RewardConfig", "KTOConfig")
_TRANSFORMERS = (
    *(f"transformers.{name}" for name in _ARGUMENTS),
    *(f"trl.{name}" for name in _TRL),
    "transformers.training_args.TrainingArguments",
    "transformers.training_args_seq2seq.Seq2SeqTrainingArguments",
)
_LIGHTNING = ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric")


@function(*(f"{home}.FullyShardedDataParallelPlugin" for home in _ACCELERATE))
def plugin(run: Run, name: str, call: Call) -> Value:
    made = _configure(run, name, call, "accelerate")
    if isinstance(made, Unknown):
        given = ("use_orig_params", "fsdp_version", "sharding_strategy", "reshard_after_forward")
        made.parts |= {part: call.kwargs[part] for part in given if part in call.kwargs}
    return made


@function(*_TRANSFORMERS)
def training_arguments(run: Run, name: str, call: Call) -> Value:
    """The settings of `fsdp_config="file.json"` are read; `fsdp_config_file` is the file's path."""
    options = _options(run, call)
    path = options.get("fsdp_config")
    if isinstance(path, str):
        config = run.project.config(path, run.source.path)
        top = config.mapping if config is not None else None
        known = config is not None and top is not None
        options["fsdp_config"] = top.values() if top is not None and known else ...
        options["fsdp_config_file"] = config.path if config is not None and known else ...
    return _configure(run, name, call, "transformers", options)


@function(
    *(f"{home}.strategies.FSDPStrategy" for home in _LIGHTNING),
    *(f"{home}.strategies.fsdp.FSDPStrategy" for home in _LIGHTNING),
    *FABRICS,
    *TRAINERS,
)
def lightning(run: Run, name: str, call: Call) -> Value:
    options = _options(run, call)
    chosen = run.settle(call.kwargs.get("strategy", Unknown()))
    if isinstance(chosen, Unknown) and chosen.library:
        options["strategy"] = chosen.library
    made = _configure(run, name, call, "lightning", options, chosen.created_at)
    if isinstance(made, Unknown):
        given = (
            "strategy", "sharding_strategy", "auto_wrap_policy", "devices", "num_nodes",
            "callbacks",
        )  # fmt: skip
        made.parts |= {part: call.kwargs[part] for part in given if part in call.kwargs}
    return made


def _options(run: Run, call: Call) -> dict[str, object]:
    return {key: python_value(run, value) for key, value in call.kwargs.items()}


def _configure(
    run: Run,
    name: str,
    call: Call,
    framework: str,
    options: dict[str, object] | None = None,
    strategy: Site | None = None,
) -> Value:
    run.emit(
        FrameworkConfigured,
        call.node,
        framework=framework,
        api=name.rpartition(".")[2],
        options=_options(run, call) if options is None else options,
        open=call.open or bool(call.args),
        strategy=strategy,
    )
    return call_unknown(run, Symbol(name), call)


def python_value(run: Run, value: Value) -> object:
    """A value as a Python constant, library names as text; `...` if unknown."""
    value = run.settle(value)
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, Partial):  # its arguments are in the values of the node
        return python_value(run, value.function)
    if isinstance(value, Sequence) and not value.open:
        return [python_value(run, item) for item in value.items]
    if isinstance(value, Dict) and not value.open and not value.tensors:
        return {key: python_value(run, item) for key, item in value.items.items()}
    return ...

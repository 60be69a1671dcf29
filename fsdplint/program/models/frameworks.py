"""What tells a framework to use FSDP: Accelerate's plugin, Transformers' arguments, Lightning's
strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdplint.program.frames import Call
from fsdplint.program.models import function
from fsdplint.program.values import Const, Dict, Sequence, Symbol, Value
from fsdplint.trace import FrameworkConfigured

if TYPE_CHECKING:
    from fsdplint.program.interpreter import Interpreter

_ACCELERATE = ("accelerate", "accelerate.utils", "accelerate.utils.dataclasses")
_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
_TRANSFORMERS = (
    *(f"transformers.{name}" for name in _ARGUMENTS),
    "transformers.training_args.TrainingArguments",
    "transformers.training_args_seq2seq.Seq2SeqTrainingArguments",
)
_LIGHTNING = ("lightning.pytorch", "pytorch_lightning", "lightning.fabric", "lightning_fabric")
_RUNNERS = (
    *("lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer"),
    *("lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric"),
)


@function(*(f"{home}.FullyShardedDataParallelPlugin" for home in _ACCELERATE))
def plugin(run: Interpreter, name: str, call: Call) -> Value:
    return _configured(run, name, call, "accelerate")


@function(*_TRANSFORMERS)
def training_arguments(run: Interpreter, name: str, call: Call) -> Value:
    return _configured(run, name, call, "transformers")


@function(
    *(f"{home}.strategies.FSDPStrategy" for home in _LIGHTNING),
    *(f"{home}.strategies.fsdp.FSDPStrategy" for home in _LIGHTNING),
    *_RUNNERS,
)
def lightning(run: Interpreter, name: str, call: Call) -> Value:
    return _configured(run, name, call, "lightning")


def _configured(run: Interpreter, name: str, call: Call, framework: str) -> Value:
    run.emit(
        FrameworkConfigured,
        call.node,
        framework=framework,
        api=name.rpartition(".")[2],
        options={key: constant(run, value) for key, value in call.kwargs.items()},
        open=call.open or bool(call.args),
    )
    return run.call_unknown(Symbol(name), call)


def constant(run: Interpreter, value: Value) -> object:
    """A value as a constant of Python, names of libraries as text; `...` where it is not known."""
    value = run.settle(value)
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, Sequence) and not value.open:
        return [constant(run, item) for item in value.items]
    if isinstance(value, Dict) and not value.open and not value.tensors:
        return {key: constant(run, item) for key, item in value.items.items()}
    return ...

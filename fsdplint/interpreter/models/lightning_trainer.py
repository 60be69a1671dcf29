"""Lightning's Trainer: `fit` shards a module, and calls its hooks and those of the callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from fsdplint.interpreter.attributes import read_attribute
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.iteration import iterate
from fsdplint.interpreter.leaves import leaves
from fsdplint.interpreter.lightning_names import TRAINERS
from fsdplint.interpreter.models.model_parallel import mesh_of
from fsdplint.interpreter.models.registry import MethodModel, function, method
from fsdplint.interpreter.models.training_frameworks import methods_of, shards_by_strategy
from fsdplint.interpreter.module_calls import call_library_method
from fsdplint.interpreter.module_tree import communicates, sharding_inside
from fsdplint.interpreter.modules import as_module
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import RankValue
from fsdplint.interpreter.transformers_models import is_transformers_model
from fsdplint.interpreter.unknown_calls import call_unknown
from fsdplint.interpreter.values import (
    Const,
    Context,
    Dict,
    Function,
    Instance,
    Method,
    ModuleValue,
    OptimizerValue,
    Partial,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import Collective, Guard, GuardKind, Prepared

_CLOSURE = "lightning.pytorch.loops.optimization.closure.Closure"
# Attributes of the module that a Trainer trains.
WRAPPED = "*wrapped by a strategy"
_TRAINED = "*trained by a Trainer"
TURNS = 2  # of the loop over the batches


@methods_of(TRAINERS, "fit")
def fit(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """Trains a module. Only strategies are followed that shard it by FSDP1, or that let it shard
    itself.
    """
    result = call_unknown(run, Unknown(origin=f"{receiver.origin}.{name}"), call)
    module = as_module(run, call.arg(0, "model")) if call.values else None
    if module is None or call.open:
        return result
    mesh = mesh_of(run, receiver, call)
    if mesh is not None or shards_by_strategy(run, receiver):
        _Fit(run, receiver, module, call).run_all(mesh)
    return result


class _Fit:
    """One call of `fit`: the hooks of the module and of the callbacks, in Lightning's order."""

    def __init__(self, run: Run, trainer: Unknown, module: ModuleValue, call: Call) -> None:
        self.run, self.trainer, self.module, self.call = run, trainer, module, call
        self.node = call.node
        callbacks = trainer.parts.get("callbacks")
        self.callbacks = list(_objects(run, callbacks)) if callbacks is not None else []

    def run_all(self, mesh: Value | None) -> None:
        """mesh: that of a strategy with which the module shards itself; None for FSDP1's."""
        self._set_up(mesh)
        optimizers = self._optimizers()
        self._everywhere("on_fit_start")
        self._everywhere("on_train_start")
        self._everywhere("on_train_epoch_start")
        batches = self._batches(1, "train_dataloaders")
        self.run.loop_depth += 1
        try:
            for _ in range(TURNS):
                self._train(batches, optimizers)
            self._validate()
        finally:
            self.run.loop_depth -= 1
        self._everywhere("on_train_epoch_end")
        checkpoint = Dict(open=True)
        self._everywhere("on_save_checkpoint", checkpoint)
        self._everywhere("on_train_end")
        self._everywhere("on_fit_end")

    def _set_up(self, mesh: Value | None) -> None:
        run, module = self.run, self.module
        strategy = run.settle(self.trainer.parts.get("strategy", Unknown()))
        if not isinstance(strategy, Unknown):
            strategy = Unknown(library="lightning.pytorch.strategies.FSDPStrategy")
            self.trainer.parts["strategy"] = strategy
        strategy.parts["model"] = module
        module.attributes[_TRAINED] = Const(True)
        module.attributes["trainer"] = self.trainer
        module.attributes["global_rank"] = RankValue("global")
        module.attributes["local_rank"] = RankValue("local")
        if mesh is not None:
            module.attributes["device_mesh"] = mesh
        self._of_module("setup", Const("fit"))
        self._of_module("configure_model")
        if mesh is None and sharding_inside(run, module) is None:
            run.emit(Prepared, self.node, modules=(module.id,), framework="Lightning", flat=False)
            strategy.parts["model"] = replace(module, framework="fsdp1")
            module.attributes[WRAPPED] = Const(True)
            policy = run.settle(strategy.parts.get("auto_wrap_policy", Const(None)))
            if not is_none(policy):  # else only the wrapper around the module communicates
                self._note_units()

    def _note_units(self) -> None:
        """A policy makes units of parts of the module: of the blocks of models of Transformers."""
        self.module.framework = "fsdp1"
        for part in map(self.run.objects.get, self.run.trace.submodules(self.module.id)):
            if isinstance(part, ModuleValue) and is_transformers_model(part):
                part.framework = "fsdp1"

    def _optimizers(self) -> list[OptimizerValue]:
        made = self._of_module("configure_optimizers")
        if made is None:
            return []
        found = [one for one in leaves(made) if isinstance(one, OptimizerValue)]
        self.module.attributes["*optimizers"] = made
        return found

    def _train(self, batch: Value, optimizers: list[OptimizerValue]) -> None:
        index = Unknown(varying=True)
        self._everywhere("on_train_batch_start", batch, index)
        closure = Partial(Symbol(_CLOSURE), [self.module, batch, index, *optimizers])
        automatic = constant(self.module.attributes.get("automatic_optimization", Const(True)))
        if automatic is True and len(optimizers) == 1:
            self._step(index, optimizers[0], closure)
        elif automatic is False:
            self._of_module("training_step", batch, index)
        self._everywhere("on_train_batch_end", Unknown(varying=True), batch, index)

    def _step(self, index: Value, optimizer: OptimizerValue, closure: Value) -> None:
        own = _method_of(self.module, "optimizer_step")
        if own is not None:
            epoch = Unknown(varying=True)
            self._of_module("optimizer_step", epoch, index, optimizer, closure)
            return
        self.run.call(closure, Call(self.node))
        self._everywhere("on_before_optimizer_step", optimizer)
        self.run.call(Method(optimizer, "step"), Call(self.node))

    def _validate(self) -> None:
        if not self._has_validation():
            return
        batch = self._batches(2, "val_dataloaders")
        index = Unknown(varying=True)
        context = Context("no_grad")
        self.run.contexts.append(context)
        try:
            self._everywhere("on_validation_epoch_start")
            self._everywhere("on_validation_batch_start", batch, index)
            result = self._of_module("validation_step", batch, index) or Unknown()
            self._everywhere("on_validation_batch_end", result, batch, index)
            self._everywhere("on_validation_epoch_end")
        finally:
            self.run.contexts.remove(context)

    def _has_validation(self) -> bool:
        """Whether the module has a step for a validation, and `fit` may get data for it."""
        if _method_of(self.module, "validation_step") is None:
            return False
        given = (self.call.arg(2, "val_dataloaders"), self.call.arg(3, "datamodule"))
        own = _method_of(self.module, "val_dataloader") is not None
        return own or any(one is not None and not is_none(self.run.settle(one)) for one in given)

    def _batches(self, position: int, keyword: str) -> Value:
        loader = self.run.settle(self.call.arg(position, keyword) or Unknown())
        elements, _ = iterate(self.run, loader)
        return elements[0] if elements else Unknown(varying=True)

    def _everywhere(self, name: str, *args: Value) -> None:
        """Call a hook of the callbacks, and then that of the module."""
        for callback in self.callbacks:
            if _method_of(callback, name) is not None:
                given = [self.trainer, self.module, *args]
                bound = read_attribute(self.run, callback, name, self.node)
                self.run.call(bound, Call(self.node, given))
        self._of_module(name, *args)

    def _of_module(self, name: str, *args: Value) -> Value | None:
        """The result of a method that the program's class defines; None if it does not."""
        return _call_own(self.run, self.module, name, Call(self.node, list(args)))


@function(_CLOSURE)
def closure(run: Run, name: str, call: Call) -> Value:
    """The step, the zeroing and the backward of one batch."""
    module, batch, index, *optimizers = call.args
    if not isinstance(module, ModuleValue):
        return Unknown()
    loss = _call_own(run, module, "training_step", Call(call.node, [batch, index]))
    loss = run.settle(loss or Unknown())
    if isinstance(loss, Dict) and not loss.open:
        loss = run.settle(loss.items.get("loss", Unknown()))
    for optimizer in optimizers:
        run.call(Method(optimizer, "zero_grad"), Call(call.node))
    if not is_none(loss):
        with run.under_guards(_if_there_is_a_loss(run, module, loss)):
            _backward(run, module, loss, call)
            _call_own(run, module, "on_after_backward", Call(call.node))
    return loss


def _if_there_is_a_loss(run: Run, module: ModuleValue, loss: Value) -> list[tuple[Guard, str]]:
    """The guard of the backward where the data of each rank decide whether there is a loss."""
    local, step = local_of(loss), _method_of(module, "training_step")
    if local is None or not local.optional or step is None:
        return []
    text = "training_step(...) is not None"
    return [(Guard(GuardKind.VARYING, text, True, step.site, own_data=local.source), "")]


def _of_trained(*names: str) -> Callable[[MethodModel], MethodModel]:
    """A decorator for the model of a method that a module has if a Trainer trains it."""

    def register(model: MethodModel) -> MethodModel:
        def chosen(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
            if _TRAINED in receiver.attributes:
                return model(run, receiver, name, call)
            return call_library_method(run, receiver, name, call)

        method("ModuleValue", *names)(chosen)
        return model

    return register


@_of_trained("manual_backward")
def manual_backward(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """`self.manual_backward(loss)` of a LightningModule."""
    loss = run.settle(call.arg(0, "loss") or Unknown())
    return _backward(run, receiver, loss, call)


def _backward(run: Run, module: ModuleValue, loss: Value, call: Call) -> Value:
    """The backward, in which the wrapper of the strategy takes part."""
    before = module.framework
    if _is_wrapped(module):
        module.framework = "fsdp1"
    try:
        return run.call(Method(loss, "backward"), Call(call.node))
    finally:
        module.framework = before


def _is_wrapped(module: ModuleValue) -> bool:
    """Whether a strategy has put FSDP1's wrapper around a module."""
    return WRAPPED in module.attributes


@_of_trained("optimizers")
def optimizers_of(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """`self.optimizers()`: the only optimizer, or all."""
    made = receiver.attributes.get("*optimizers")
    found = [one for one in leaves(made) if isinstance(one, OptimizerValue)] if made else []
    return found[0] if len(found) == 1 else Unknown(origin="optimizers()")


@_of_trained("log", "log_dict")
def log(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """Logs numbers. With `sync_dist`, all ranks reduce them."""
    alone = call.kwargs.get("rank_zero_only")
    if constant(call.kwargs.get("sync_dist")) is True and alone is None:
        if _is_wrapped(receiver) or communicates(run, receiver):
            run.emit(Collective, call.node, api=f"LightningModule.{name}", collective=True)
    return Const(None)


@_of_trained("all_gather")
def all_gather(run: Run, receiver: ModuleValue, name: str, call: Call) -> Value:
    """`self.all_gather(data)`: all ranks exchange it."""
    run.emit(Collective, call.node, api="LightningModule.all_gather", collective=True)
    return Unknown()


@methods_of(TRAINERS, "save_checkpoint")
def save_checkpoint(run: Run, receiver: Unknown, name: str, call: Call) -> Value:
    """`trainer.save_checkpoint(path)`: all ranks gather what a strategy shards, and wait."""
    if mesh_of(run, receiver, call) is not None or shards_by_strategy(run, receiver):
        run.emit(Collective, call.node, api="Trainer.save_checkpoint", collective=True)
    return Const(None)


def _call_own(run: Run, module: ModuleValue, name: str, call: Call) -> Value | None:
    if _method_of(module, name) is None:
        return None
    return run.call(read_attribute(run, module, name, call.node), call)


def _method_of(value: Value, name: str) -> Function | None:
    """The method of the program's class; None if a library has it."""
    cls = value.cls if isinstance(value, Instance | ModuleValue) else None
    found = cls.lookup(name) if cls is not None else None
    return found if isinstance(found, Function) else None


def _objects(run: Run, values: Value) -> Iterator[Value]:
    """The objects of the program in a list of callbacks."""
    for value in leaves(run.settle(values)):
        value = run.settle(value)
        if isinstance(value, Instance | ModuleValue):
            yield value

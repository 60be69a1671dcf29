"""The full parameters at the end of a run, by their unwrapped names, for FSDP1 and FSDP2."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import re
import time
from typing import Any

from fsdplint.runtime.recorder.full_disk import is_full
from fsdplint.runtime.recorder.identity import IdentityMap
from fsdplint.runtime.recorder.objects import Objects
from fsdplint.runtime.recorder.recorder import Recorder

_PREFIXES = re.compile(
    r"(?:^|(?<=\.))(?:_fsdp_wrapped_module|_orig_mod|_checkpoint_wrapped_module)\."
)
# Seconds to wait for the other ranks before the parameters are given up.
_PATIENCE = 30.0
# The number of optimizers that are kept alive: enough for one training, few of a search.
_KEPT = 4


class FinalState:
    """Keeps the trained models alive and gathers them at the end of the run.

    Attributes:
        enabled: whether `capture` gathers the parameters.
    """

    def __init__(self, recorder: Recorder, objects: Objects) -> None:
        self._recorder = recorder
        self._objects = objects
        self.enabled = False
        self._done = False
        # The optimizers that stepped last, each with the models that it trains.
        self._trained: dict[int, tuple[Any, list[Any]]] = {}
        # The modules of models that were listed, each with the number of its first list.
        self._listed: IdentityMap[int] = IdentityMap()
        self._listings = 0

    def keep(self, optimizer: Any) -> None:
        """Keep an optimizer and its models alive: their function may return before `capture`."""
        if not self.enabled or self._done or id(optimizer) in self._trained:
            return
        optimized = {id(p) for group in optimizer.param_groups for p in group["params"]}
        trained = [
            root for root in self.models() if any(id(p) in optimized for p in root.parameters())
        ]
        self._trained[id(optimizer)] = optimizer, trained
        if len(self._trained) > _KEPT:
            del self._trained[next(iter(self._trained))]

    def capture(self) -> None:
        """Gather and write the full parameters and buffers of every model, once.

        All ranks take part. If a rank does not arrive because it failed, nothing is gathered.
        """
        if self._done or not self.enabled or self._recorder.folder is None:
            return
        self._done = True
        self._recorder.on = False
        try:
            if self._all_ranks_arrive():
                self._write(self.models())
        except Exception as error:
            self._report_error(error)
        finally:
            self._recorder.on = True
            self._trained.clear()

    def models(self) -> list[Any]:
        """The outermost modules around those that were sharded, optimized or called.

        They are in the order of their creation, which a fix does not change. If the program calls,
        shards and optimizes only parts of its model, the full model still names the parameters.

        FSDP1's wrappers refer to themselves, so a model that the program has dropped stays until a
        garbage collection. New models cause one, so that both runs list the same models.
        """
        found = self._existing_models()
        if any(self._listing(model) is None for model in found):
            del found
            gc.collect()
            found = self._existing_models()
            self._listings += 1
            for part in (part for model in found for part in model.modules()):
                if self._listed.get(part) is None:
                    self._listed.set(part, self._listings)
        return sorted(found, key=lambda model: self._listing(model) or 0)

    def _listing(self, model: Any) -> int | None:
        """The number of the first list with a model, or with a part of it that was a model then."""
        numbers = [self._listed.get(part) for part in model.modules()]
        return min((number for number in numbers if number is not None), default=None)

    def _existing_models(self) -> list[Any]:
        """The models that exist, in the order in which their first modules were built."""
        import torch

        used = {
            id(module): int(name[1:])
            for module, name in self._objects.names.items()
            if isinstance(module, torch.nn.Module) and next(module.parameters(), None) is not None
        }
        known = {
            id(module): module
            for module, _ in (*self._objects.built.items(), *self._objects.names.items())
        }
        known = {key: one for key, one in known.items() if isinstance(one, torch.nn.Module)}
        children = {id(child) for one in known.values() for child in _children(one)}
        found = []
        for key, module in known.items():
            if key in children or "_modules" not in vars(module):
                continue
            parts = list(module.modules())
            numbers = [used[id(part)] for part in parts if id(part) in used]
            if numbers:
                # A wrapper is built later than the modules in it.
                built = (self._objects.built.get(part) for part in parts)
                first = min((one.number for one in built if one is not None), default=math.inf)
                found.append((first, min(numbers), module))
        return [module for _, _, module in sorted(found, key=lambda one: one[:2])]

    def _report_error(self, error: Exception) -> None:
        """Report an error of the recorder, which is not one of the program."""
        if is_full(error):
            self._recorder.end_with_error(error)
        else:
            self._recorder.record_error()

    def _all_ranks_arrive(self) -> bool:
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_initialized():
            return self._recorder.world == 1
        from datetime import timedelta

        from torch.distributed.distributed_c10d import _get_default_store

        store = _get_default_store()
        store.set(f"fsdplint/final/{dist.get_rank()}", "1")
        keys = [f"fsdplint/final/{rank}" for rank in range(dist.get_world_size())]
        try:
            store.wait(keys, timedelta(seconds=_PATIENCE))
        except Exception:
            self._recorder.write(
                {"t": "note", "text": "parameters not gathered: a rank did not arrive"}
            )
            return False
        return True

    def _write(self, models: list[Any]) -> None:
        import torch

        tensors: dict[str, Any] = {}
        names: dict[int, str] = {}
        with torch.no_grad():
            for index, model in enumerate(models):
                for name, tensor in _full(model):
                    tensors[f"{index}:{name}"] = tensor
                for name, parameter in named_tensors(model, "_parameters"):
                    # Use the first name of a tied weight, as FSDP1 does.
                    names.setdefault(id(parameter), f"{index}:{plain_name(name)}")
            self._save("parameters", tensors)
            try:
                self._save("optimizer", self._optimizer_states(models, names))
            except Exception as error:
                self._report_error(error)

    def _save(self, name: str, value: dict[str, Any]) -> None:
        import torch

        if self._recorder.rank != 0:
            return
        assert self._recorder.folder is not None
        path = os.path.join(self._recorder.folder, f"{name}.pt")
        torch.save(value, path + ".part")
        os.replace(path + ".part", path)
        self._recorder.write({"t": name, "count": len(value), "time": time.time()})

    def _optimizer_states(self, models: list[Any], names: dict[int, str]) -> dict[str, Any]:
        """The full state of the optimizers, by the unwrapped names of the parameters."""
        import torch

        found: dict[str, Any] = {}
        for optimizer, _ in sorted(self._objects.names.items(), key=lambda pair: str(pair[1])):
            if not isinstance(optimizer, torch.optim.Optimizer):
                continue
            states = _fsdp1_states(models, optimizer)
            if states is None:
                states = {names.get(id(p), ""): state for p, state in optimizer.state.items()}
            for name, state in states.items():
                found[name] = {key: _full_tensor(value) for key, value in state.items()}
        return found


def plain_name(name: str) -> str:
    """The name of a parameter or module without the parts that wrappers add."""
    return _PREFIXES.sub("", f"{name}.").removesuffix(".")


def _children(module: Any) -> Any:
    """The submodules of a module; empty if its constructor has not run that far."""
    return vars(module).get("_modules", {}).values()


def _fsdp1_states(models: list[Any], optimizer: Any) -> dict[str, Any] | None:
    from torch.distributed.fsdp import (
        FullOptimStateDictConfig,
        FullStateDictConfig,
        StateDictType,
    )
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    optimized = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for index, model in enumerate(models):
        if not any(isinstance(part, FSDP) for part in model.modules()):
            continue
        if not any(id(p) in optimized for p in model.parameters()):
            continue
        full = FullStateDictConfig(offload_to_cpu=False, rank0_only=False)
        full_optimizer = FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=False)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, full, full_optimizer):
            states = FSDP.optim_state_dict(model, optimizer)["state"]
        return {f"{index}:{plain_name(name)}": state for name, state in states.items()}
    return None


def _full_tensor(value: Any) -> Any:
    """The full tensor of a DTensor, on the CPU; a plain tensor or a number as it is."""
    if hasattr(value, "full_tensor"):
        device = value.device_mesh.device_type
        if value.device.type != device:  # offloaded: the group may have no backend for the CPU
            value = value.to(device)
        value = value.full_tensor()
    return value.detach().cpu().clone() if hasattr(value, "detach") else value


def _full(model: Any) -> Any:
    """(unwrapped name, full tensor on the CPU) for every parameter and buffer of a model."""
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    parts = list(model.modules())
    for part in parts:
        if isinstance(part, FSDPModule):
            part.reshard()
    context: Any = contextlib.nullcontext()
    if any(isinstance(part, FSDP) for part in parts):
        # Without offload: FSDP1 cannot offload to the CPU if the CPU is the device.
        context = FSDP.summon_full_params(model, writeback=False)
    ddp = type(model).__name__ == "DistributedDataParallel"
    with context:
        for name, tensor in [
            *named_tensors(model, "_parameters"),
            *named_tensors(model, "_buffers"),
        ]:
            if ddp:
                name = name.removeprefix("module.")
            if not tensor.is_meta:
                yield plain_name(name), _full_tensor(tensor)


def named_tensors(model: Any, kind: str) -> list[tuple[str, Any]]:
    """Parameters or buffers by name, in the order of the modules; a tied one under each name."""
    found = []
    for prefix, module in model.named_modules(remove_duplicate=True):
        for key, tensor in vars(module)[kind].items():
            if tensor is not None:
                found.append((f"{prefix}.{key}" if prefix else key, tensor))
    return found

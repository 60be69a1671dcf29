"""Installs the emulation and switches it on."""

from __future__ import annotations

import os

from fsdplint.runtime.emulation import accelerator, cuda, devices, fsdp, groups, modules
from fsdplint.runtime.emulation.shared_gpus import share_gpus
from fsdplint.runtime.emulation.switch import EMULATION
from fsdplint.runtime.recorder import patching

_installed = False


def install() -> None:
    """Install the wrappers, switched off; call this once, before the watchers are installed."""
    global _installed
    if _installed:
        return
    _installed = True
    for area in (cuda, groups, modules, fsdp):
        area.install()
    patching.apply_replacements()


def choose(device: str, local_ranks: int) -> None:
    """Switch the emulation on if `device` asks for it or there are too few devices.

    device: "cpu" (emulate), "cuda" (never emulate; ranks share the devices if there are too few),
        "auto" (emulate if this machine has fewer CUDA devices than ranks).
    """
    import torch

    if device == "cuda":
        share_gpus(local_ranks)
        return
    if device == "auto" and torch.cuda.is_available():
        if torch.cuda.device_count() >= local_ranks:
            return
    switch_on(local_ranks)


def switch_on(local_ranks: int) -> None:
    EMULATION.on = True
    EMULATION.count = max(1, local_ranks)
    EMULATION.device = int(os.environ.get("LOCAL_RANK", "0")) if local_ranks > 1 else 0
    cuda.switch_on()
    accelerator.switch_on()
    devices.switch_on()

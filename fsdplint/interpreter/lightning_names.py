"""The names of Lightning's classes that run a program: Fabric and Trainer."""

from __future__ import annotations

FABRICS = frozenset(
    {"lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric"}
    | {"lightning.fabric.fabric.Fabric", "lightning_fabric.fabric.Fabric"}
)
TRAINERS = frozenset(
    {"lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer"}
    | {f"{home}.trainer.Trainer" for home in ("lightning.pytorch", "pytorch_lightning")}
)

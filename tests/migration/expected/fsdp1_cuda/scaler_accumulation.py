"""fp16 with a scaler, gradient accumulation, and SHARD_GRAD_OP by attribute of a config.

  torchrun --nproc-per-node 2 scaler_accumulation.py
"""
import os
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

config = SimpleNamespace(
  sharding="SHARD_GRAD_OP",
  dtype=torch.float16,
  accumulate=2,
  steps=3,
  max_norm=1.0,
  init_scale=256.0,
)


class Mlp(nn.Module):
  def __init__(self, d):
    super().__init__()
    self.a = nn.Linear(d, 2 * d)
    self.b = nn.Linear(2 * d, d)

  def forward(self, x):
    return x + self.b(torch.relu(self.a(x)))


def sharding_arguments(strategy):
  """The arguments of fully_shard for the name of one of FSDP1's sharding strategies."""
  if strategy == "NO_SHARD":
    shape = (dist.get_world_size(), 1)
  elif strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
    per_node = torch.cuda.device_count()
    shape = (dist.get_world_size() // per_node, per_node)
  else:
    return {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}
  mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
  arguments = {"mesh": mesh}
  if strategy == "_HYBRID_SHARD_ZERO2":
    arguments["reshard_after_forward"] = False
  return arguments


def main():
  torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
  dist.init_process_group("nccl")
  torch.manual_seed(1 + dist.get_rank())  # rank 0's weights are the ones that count
  model = nn.Sequential(nn.Linear(6, 16), Mlp(16), Mlp(16), nn.Linear(16, 1))
  half = MixedPrecisionPolicy(
    param_dtype=config.dtype, reduce_dtype=config.dtype
  )
  full_state = model.state_dict()
  fsdp_kwargs = {
    **sharding_arguments(config.sharding),
    "mp_policy": half,
  }
  for module in reversed(list(model.modules())):
    if isinstance(module, Mlp):
      fully_shard(module, **fsdp_kwargs)
  fully_shard(model, **fsdp_kwargs)
  # All ranks start from rank 0's weights and buffers.
  set_model_state_dict(
    model, full_state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
  )
  for buffer in model.buffers():
    dist.broadcast(buffer, src=0)
  del full_state
  scaler = torch.amp.GradScaler("cuda", init_scale=config.init_scale, growth_interval=2)
  optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
  data = torch.Generator().manual_seed(70 + dist.get_rank())
  for step in range(config.steps):
    for micro in range(config.accumulate):
      x = torch.randn(8, 6, generator=data).cuda()
      if micro < config.accumulate - 1:
        model.set_requires_gradient_sync(False)
        loss = (model(x).float() - x.sum(dim=1, keepdim=True)).pow(2).mean() / config.accumulate
        scaler.scale(loss).backward()
        model.set_requires_gradient_sync(True)
      else:
        loss = (model(x).float() - x.sum(dim=1, keepdim=True)).pow(2).mean() / config.accumulate
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_norm)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
      print("step", step, "loss", round(loss.item(), 4), "scale", scaler.get_scale())
  dist.barrier()
  dist.destroy_process_group()


if __name__ == "__main__":
  main()

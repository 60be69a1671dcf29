"""Vision transformer with activation checkpointing.

  torchrun --nproc-per-node 2 vit_two_space.py --steps 6 --no-checkpointing
"""
import argparse
import functools
import os

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
  CheckpointImpl,
  apply_activation_checkpointing,
  checkpoint_wrapper,
)
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.fsdp import fully_shard


class EncoderBlock(nn.Module):

  def __init__(self, width, heads):
    super().__init__()
    self.heads = heads
    self.norm1 = nn.LayerNorm(width)
    self.qkv = nn.Linear(width, 3 * width)
    self.proj = nn.Linear(width, width)
    self.norm2 = nn.LayerNorm(width)
    self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

  def forward(self, x):
    b, n, c = x.shape
    qkv = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, c // self.heads)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    y = nn.functional.scaled_dot_product_attention(q, k, v)
    x = x + self.proj(y.transpose(1, 2).reshape(b, n, c))
    return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):

  def __init__(self, image_size=16, patch_size=4, width=48, depth=3, heads=4, classes=6):
    super().__init__()
    self.patch_embed = nn.Conv2d(3, width, patch_size, patch_size)
    n_patches = (image_size // patch_size) ** 2
    self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
    self.pos_embed = nn.Parameter(torch.randn(1, n_patches + 1, width) * 0.02)
    self.blocks = nn.Sequential(*[EncoderBlock(width, heads) for _ in range(depth)])
    self.norm = nn.LayerNorm(width)
    self.head = nn.Linear(width, classes)

  def forward(self, images):
    x = self.patch_embed(images).flatten(2).transpose(1, 2)
    x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
    x = self.blocks(x + self.pos_embed)
    return self.head(self.norm(x[:, 0]))


def add_checkpointing(model, enabled):
  """Recompute every encoder block in the backward pass."""
  if enabled:
    wrapper = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
    apply_activation_checkpointing(
      model,
      checkpoint_wrapper_fn=wrapper,
      check_fn=lambda module: isinstance(module, EncoderBlock),
    )
  return model


def build_vit(flags):
  torch.manual_seed(flags.seed)
  return VisionTransformer(width=flags.width, depth=flags.depth)


def build_sharded_vit(flags, device):
  bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
  model = build_vit(flags)
  mp_policy = bf16 if flags.bf16 else MixedPrecisionPolicy()
  for module in reversed(list(model.modules())):
    if isinstance(module, EncoderBlock):
      fully_shard(module, mp_policy=mp_policy)
  return add_checkpointing(
    fully_shard(model, mp_policy=mp_policy),
    enabled=flags.checkpointing,
  )


class ColouredNoise(torch.utils.data.IterableDataset):
  """Noise images; the class says which channel is brighter and in which direction."""

  def __init__(self, seed, length):
    self.seed, self.length = seed, length

  def __iter__(self):
    generator = torch.Generator().manual_seed(self.seed)
    for _ in range(self.length):
      label = int(torch.randint(0, 6, (1,), generator=generator))
      image = torch.randn(3, 16, 16, generator=generator)
      image[label // 2] += 1.0 if label % 2 else -1.0
      yield image, label


def main(flags):
  cuda = torch.cuda.is_available()
  local_rank = int(os.environ['LOCAL_RANK'])
  if cuda:
    torch.cuda.set_device(local_rank)
  dist.init_process_group(backend='nccl' if cuda else 'gloo')
  device = torch.device('cuda', local_rank) if cuda else torch.device('cpu')
  rank = dist.get_rank()

  vit = build_sharded_vit(flags, device)
  optimizer = torch.optim.AdamW(vit.parameters(), lr=flags.lr)
  loader = torch.utils.data.DataLoader(
    ColouredNoise(seed=31 + rank, length=flags.steps * flags.batch_size),
    batch_size=flags.batch_size,
  )

  vit.train()
  for step, (images, labels) in enumerate(loader):
    images, labels = images.to(device), labels.to(device)
    optimizer.zero_grad()
    logits = vit(images)
    loss = nn.functional.cross_entropy(logits.float(), labels, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
    if rank == 0:
      print('step: {} loss: {:.6f}'.format(step, loss.item()))

  state = get_model_state_dict(vit, options=StateDictOptions(full_state_dict=True))  # full weights on every rank
  if rank == 0:
    os.makedirs(flags.out, exist_ok=True)
    torch.save(state, os.path.join(flags.out, 'vit.pt'))
    print('saved {} tensors'.format(len(state)))

  dist.barrier()
  dist.destroy_process_group()


if __name__ == '__main__':
  parser = argparse.ArgumentParser()
  parser.add_argument('--steps', type=int, default=8)
  parser.add_argument('--batch_size', type=int, default=8)
  parser.add_argument('--width', type=int, default=48)
  parser.add_argument('--depth', type=int, default=3)
  parser.add_argument('--lr', type=float, default=2e-3)
  parser.add_argument('--seed', type=int, default=11)
  parser.add_argument('--no-bf16', dest='bf16', action='store_false')
  parser.add_argument('--no-checkpointing', dest='checkpointing', action='store_false')
  parser.add_argument('--out', default='checkpoints')
  main(parser.parse_args())

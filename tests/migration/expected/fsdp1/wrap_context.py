"""The model wraps its own parts while it is built, by enable_wrap and wrap.

  torchrun --nproc-per-node 2 wrap_context.py --out checkpoints
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class Layer(nn.Module):
  def __init__(self, width):
    super().__init__()
    self.a = nn.Linear(width, width)
    self.b = nn.Linear(width, width)

  def forward(self, x):
    return x + self.b(torch.relu(self.a(x)))


class Stack(nn.Module):
  def __init__(self, width=16, depth=3):
    super().__init__()
    self.enter = nn.Linear(5, width)
    self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
    self.leave = nn.Linear(width, 2)

  def forward(self, x):
    x = self.enter(x)
    for layer in self.layers:
      x = layer(x)
    return self.leave(x)


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--out', default='checkpoints')
  args = parser.parse_args()

  cuda = torch.cuda.is_available()
  device = torch.device('cuda', int(os.environ['LOCAL_RANK'])) if cuda else torch.device('cpu')
  if cuda:
    torch.cuda.set_device(device)
  dist.init_process_group('nccl' if cuda else 'gloo')

  torch.manual_seed(21)
  model = Stack()
  for layer in model.layers:
    fully_shard(layer, reshard_after_forward=False)
  fully_shard(model.leave, reshard_after_forward=False)
  fully_shard(model, reshard_after_forward=False)

  optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
  data = torch.Generator().manual_seed(31 + dist.get_rank())
  for step in range(3):
    x = torch.randn(8, 5, generator=data)
    target = torch.stack([x[:, 0] * x[:, 1], x[:, 2:].sum(dim=1)], dim=1)
    loss = nn.functional.mse_loss(model(x.to(device)), target.to(device))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
      print('step {} loss {:.6f}'.format(step, loss.item()))

  state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
  if dist.get_rank() == 0:
    os.makedirs(args.out, exist_ok=True)
    torch.save(state, os.path.join(args.out, 'stack.pt'))
  dist.destroy_process_group()


if __name__ == '__main__':
  main()

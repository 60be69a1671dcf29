"""Low-rank adapters on a frozen encoder.

The blocks are wrapped by class. Inside them every trainable adapter matrix is wrapped on its own, because
an FSDP unit with flat parameters cannot hold frozen and trainable weights at once.

	torchrun --nproc-per-node 2 lambda_policy.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard

OUT = os.environ.get("OUT_DIR", "checkpoints")
STEPS = 7
MICRO_BATCHES = 3


class LoRALinear(nn.Module):
	"""A frozen linear layer plus a trainable low-rank update."""

	def __init__(self, n_in, n_out, r=4):
		super().__init__()
		self.base = nn.Linear(n_in, n_out)
		self.down = nn.Linear(n_in, r, bias=False)
		self.up = nn.Linear(r, n_out, bias=False)
		nn.init.zeros_(self.up.weight)

	def forward(self, x):
		return self.base(x) + self.up(self.down(x))


class Layer(nn.Module):
	def __init__(self, d):
		super().__init__()
		self.norm = nn.LayerNorm(d)
		self.q = LoRALinear(d, d)
		self.k = nn.Linear(d, d)
		self.v = LoRALinear(d, d)
		self.o = nn.Linear(d, d)
		self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d))

	def forward(self, x):
		h = self.norm(x)
		x = x + self.o(nn.functional.scaled_dot_product_attention(self.q(h), self.k(h), self.v(h)))
		return x + self.ff(x)


class Net(nn.Module):
	def __init__(self, n_features=6, d=32, depth=2):
		super().__init__()
		self.inp = nn.Linear(n_features, d)
		self.body = nn.ModuleList([Layer(d) for _ in range(depth)])
		self.out = nn.Linear(d, n_features)

	def forward(self, x):
		x = self.inp(x)
		for layer in self.body:
			x = layer(x)
		return self.out(x)


def freeze_base(net):
	for name, p in net.named_parameters():
		p.requires_grad = ".down." in name or ".up." in name


def make_policy():
	def is_trainable_leaf(module):
		return (
			len(list(module.named_children())) == 0
			and getattr(module, "weight", None) is not None
			and module.weight.requires_grad
		)

	return lambda module: is_trainable_leaf(module) or isinstance(module, Layer)


def unwrap(model):
	return model


def get_batch(rng, device):
	"""A noisy signal and the clean one, rolled by one position."""
	t = torch.rand(4, 1, 6, generator=rng) + torch.linspace(0, 3, 10).view(1, 10, 1)
	clean = torch.sin(t)
	noisy = clean + 0.1 * torch.randn(4, 10, 6, generator=rng)
	return noisy.to(device), clean.roll(1, dims=1).to(device)


def main():
	if torch.cuda.is_available():
		dev = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
		torch.cuda.set_device(dev)
		dist.init_process_group("nccl")
	else:
		dev = torch.device("cpu")
		dist.init_process_group("gloo")
	rank = dist.get_rank()

	torch.manual_seed(5)
	net = Net()
	freeze_base(net)
	should_shard = make_policy()
	for module in reversed(list(net.modules())[1:]):
		if should_shard(module):
			fully_shard(module)
	fsdp_model = fully_shard(net)
	units = sum(isinstance(m, FSDPModule) for m in fsdp_model.modules())
	if rank == 0:
		print("fsdp units:", units, "around", type(unwrap(fsdp_model)).__name__)

	trainable = [p for p in fsdp_model.parameters() if p.requires_grad]
	opt = torch.optim.AdamW(trainable, lr=2e-2)
	rng = torch.Generator().manual_seed(900 + rank)

	fsdp_model.train()
	for step in range(STEPS):
		opt.zero_grad()
		total = 0.0
		# all micro-batches but the last keep their gradients local
		fsdp_model.set_requires_gradient_sync(False)
		for _ in range(MICRO_BATCHES - 1):
			x, y = get_batch(rng, dev)
			loss = nn.functional.mse_loss(fsdp_model(x), y) / MICRO_BATCHES
			loss.backward()
			total += loss.item()
		fsdp_model.set_requires_gradient_sync(True)
		x, y = get_batch(rng, dev)
		loss = nn.functional.mse_loss(fsdp_model(x), y) / MICRO_BATCHES
		loss.backward()
		total += loss.item()

		torch.nn.utils.clip_grad_norm_(fsdp_model.parameters(), 0.5)
		opt.step()
		if rank == 0:
			print("step", step, "loss", round(total, 6))

	state = get_model_state_dict(
		fsdp_model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
	)
	if rank == 0:
		adapters = {k: v for k, v in state.items() if ".down." in k or ".up." in k}
		os.makedirs(OUT, exist_ok=True)
		torch.save(adapters, os.path.join(OUT, "adapters.pt"))
		print("saved", len(adapters), "adapter matrices")

	dist.barrier()
	dist.destroy_process_group()


if __name__ == "__main__":
	main()

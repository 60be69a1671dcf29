"""The frame of the example programs of the rules on FSDP1: a small model, and what comes around
it.
"""

from __future__ import annotations

MODEL = """\

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.blocks(x))


dist.init_process_group("gloo")
torch.manual_seed(0)
"""

STEP = """\
for step in range(2):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""


def program(imports: str, body: str, end: str = STEP) -> str:
    """A program: imports, the model, a body that makes `model` and `optimizer`, and an end."""
    head = "import torch\nimport torch.distributed as dist\nimport torch.nn as nn\n"
    return f"{head}{imports}\n{MODEL}{body}{end}"


OWN_CLASS = program(
    "",
    """\

class FSDP(nn.Module):
    \"\"\"Feature selection by dropping pixels; nothing to do with sharding.\"\"\"

    def __init__(self, inner):
        super().__init__()
        self.module = inner

    def forward(self, x):
        return self.module(x)

    def clip_grad_norm_(self, limit):
        return nn.utils.clip_grad_norm_(self.parameters(), limit)


model = FSDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.clip_grad_norm_(1.0)
""",
)

FSDP2 = program(
    "from torch.distributed.fsdp import fully_shard\n",
    """\
model = Net()
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
)

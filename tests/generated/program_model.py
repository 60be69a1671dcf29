"""The classes of a generated program: its blocks and its model."""

from __future__ import annotations

from program_features import Description


def classes(d: Description) -> list[str]:
    """The text of the classes, by line."""
    lines: list[str] = []
    if d["nesting"] == "yes":
        lines += _mlp(d)
    if d["gate"] == "yes":
        lines += _gate()
    return [*lines, *_block(d), *_net(d)]


def _gate() -> list[str]:
    return [
        "class Gate(nn.Module):",
        "    def forward(self, x):",
        "        return torch.sigmoid(x if x.dtype == torch.float32 else 2 * x)",
        "",
        "",
    ]


def _mlp(d: Description) -> list[str]:
    return [
        "class Mlp(nn.Module):",
        "    def __init__(self, dim):",
        "        super().__init__()",
        "        self.up = nn.Linear(dim, 2 * dim)",
        "        self.down = nn.Linear(2 * dim, dim)",
        "",
        "    def forward(self, x):",
        "        return self.down(torch.relu(self.up(x)))",
        "",
        "",
    ]


def _block(d: Description) -> list[str]:
    """A residual block, with a buffer, attention and a mask if the description has them."""
    mask = d["mask"] != "no"
    lines = [
        "class Block(nn.Module):",
        "    def __init__(self, dim):",
        "        super().__init__()",
        "        self.norm = nn.LayerNorm(dim)",
    ]
    if d["gate"] == "yes":
        lines.append("        self.gate = Gate()")
    if d["attention"] == "yes":
        lines.append(
            "        self.attention = nn.MultiheadAttention(dim, 2, bias=False, batch_first=True)"
        )
    if d["nesting"] == "yes":
        lines.append("        self.mlp = Mlp(dim)")
    else:
        lines += [
            "        self.up = nn.Linear(dim, 2 * dim)",
            "        self.down = nn.Linear(2 * dim, dim)",
        ]
    scale = "torch.full((dim,), 0.7)"
    if d["buffer"] == "float":
        lines.append(f'        self.register_buffer("scale", {scale})')
    elif d["buffer"] == "not_persistent":
        lines.append(f'        self.register_buffer("scale", {scale}, persistent=False)')
    elif d["buffer"] == "counter":
        lines.append('        self.register_buffer("seen", torch.zeros(1, dtype=torch.long))')
    if d["init"] == "meta_reset" and d["buffer"] != "none":
        lines += ["", "    def reset_parameters(self):"]
        if d["buffer"] == "counter":
            lines.append("        self.seen.zero_()")
        else:
            lines.append("        self.scale.fill_(0.7)")
    lines += ["", f"    def forward(self, x{', mask' if mask else ''}):"]
    if d["buffer"] in ("float", "not_persistent"):
        lines.append("        x = (x * self.scale).to(x.dtype)")
    elif d["buffer"] == "counter":
        lines.append("        self.seen += 1")
    lines.append("        h = self.norm(x)")
    if d["gate"] == "yes":
        lines.append("        h = h * self.gate(h.float()).to(h.dtype)")
    if d["attention"] == "yes":
        lines.append("        h = h + self.attention(h, h, h, need_weights=False)[0]")
    if d["nesting"] == "yes":
        lines.append("        h = self.mlp(h)")
    else:
        lines.append("        h = self.down(torch.relu(self.up(h)))")
    if mask:
        lines.append("        return (x + h * mask).to(x.dtype)")
    else:
        lines.append("        return x + h")
    return [*lines, "", ""]


def _net(d: Description) -> list[str]:
    block = "wrap(Block(dim))" if d["policy"] == "wrap_in_constructor" else "Block(dim)"
    if d["checkpointing"] == "in_constructor":
        block = block.replace("Block(dim)", "checkpoint_wrapper(Block(dim))")
    blocks = {
        "list": f"nn.ModuleList([{block} for _ in range(depth)])",
        "sequential": f"nn.Sequential(*[{block} for _ in range(depth)])",
        "dict": f"nn.ModuleDict({{str(i): {block} for i in range(depth)}})",
    }[d["blocks"]]
    tokens = d["model"] == "tokens"
    size = "12" if tokens else "4"
    lines = [
        "class Net(nn.Module):",
        "    def __init__(self, dim=8, depth=2):",
        "        super().__init__()",
        f"        self.embed = {'nn.Embedding(12, dim)' if tokens else 'nn.Linear(dim, dim)'}",
    ]
    if d["ignored"] != "none":
        lines.append("        self.side = nn.Linear(dim, dim)")
    lines += [
        f"        self.blocks = {blocks}",
        "        self.norm = nn.LayerNorm(dim)",
        f"        self.head = nn.Linear(dim, {size}, bias=False)",
    ]
    if d["tied"] == "yes":
        lines.append("        self.head.weight = self.embed.weight")
    lines += ["", "    def forward(self, x):", "        x = self.embed(x)"]
    if d["ignored"] != "none":
        lines.append("        x = x + self.side(x.float()).to(x.dtype)")
    argument = ""
    if d["mask"] != "no":
        lines.append("        mask = torch.full((x.shape[1], 1), 0.9, device=x.device)")
        argument = ", mask" if d["mask"] == "positional" else ", mask=mask"
    if d["blocks"] == "sequential":
        lines.append("        x = self.blocks(x)")
    else:
        values = "self.blocks.values()" if d["blocks"] == "dict" else "self.blocks"
        lines += [f"        for block in {values}:", f"            x = block(x{argument})"]
    lines.append("        return self.head(self.norm(x))")
    if d["generation"] != "none":
        lines += [
            "",
            "    @torch.no_grad()",
            "    def generate(self, tokens, length):",
            "        for _ in range(length):",
            "            token = self(tokens)[:, -1].argmax(dim=-1, keepdim=True)",
            "            tokens = torch.cat([tokens, token], dim=1)",
            "        return tokens",
        ]
    if d["generation"] == "parts":
        lines += ["", "    def encode(self, x):", "        return self.norm(self.embed(x))"]
    return [*lines, "", ""]

"""Forms that have no faithful rewrite, and the reasons that are given for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import plan

BLOCKED = {
    "buffers that get values after the model is wrapped": (
        "from library import Large\n"
        "with torch.device('meta'):\n    net = Large()\n"
        "low = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)\n"
        "model = FSDP(net, mixed_precision=low)\n"
        "model.to_empty(device='cuda')\nmodel.initialize()",
        "FSDP1 casts its buffers later, in the first forward",
    ),
    "a strategy that another library chooses": (
        "from settings import strategy\nmodel = FSDP(Net(), sharding_strategy=strategy)",
        "these files do not make this `ShardingStrategy`",
    ),
    "a strategy in an attribute that another library sets": (
        "from base import Runner\n"
        "class Own(Runner):\n    def __init__(self):\n        super().__init__()\n"
        "        self.model = FSDP(Net(), sharding_strategy=self.strategy)\n"
        "Own().run()",
        "these files do not make this `ShardingStrategy`",
    ),
    "an argument that has the name of a method here": (
        "kwargs = dict(drop=None)\nmodel = FSDP(Net(), **kwargs)",
        "takes no argument `drop` here: the call raises TypeError",
    ),
    "the result of a load into FSDP1's model or DDP's": (
        "from torch.nn.parallel import DistributedDataParallel\n"
        "def load(model, path):\n    print(model.load_state_dict(torch.load(path)))\n"
        "load(FSDP(Net()), 'a.pt')\nload(DistributedDataParallel(Net()), 'b.pt')",
        "model that DDP wraps",
    ),
    "a policy that only FSDP1 can call, and another reader": (
        "policy = CustomPolicy(lambda module: isinstance(module, Block))\n"
        "model = FSDP(Net(), auto_wrap_policy=policy)\ntree = build_tree(model, policy)",
        "also uses this CustomPolicy",
    ),
    "a precision that Accelerate's FSDP1 gets too": (
        "from accelerate import FullyShardedDataParallelPlugin\n"
        "half = MixedPrecision(param_dtype=torch.bfloat16)\n"
        "model = FSDP(Net(), mixed_precision=half)\n"
        "plugin = FullyShardedDataParallelPlugin(mixed_precision_policy=half)",
        "`FullyShardedDataParallelPlugin` of Accelerate gets this object, too",
    ),
    "a use that depends on a subclass": (
        "class Sharded(FSDP):\n"
        "    def forward(self, x):\n        return super().forward(x)\n"
        "    def read(self):\n        with FSDP.summon_full_params(self, writeback=False):\n"
        "            return [p.sum() for p in self.parameters()]\n"
        "print(Sharded(Net()).read())",
        "depends on the subclass of FSDP that wraps the model",
    ),
    "a policy without the argument that it needs": (
        "model = FSDP(Net(), auto_wrap_policy=transformer_auto_wrap_policy)",
        "`transformer_auto_wrap_policy` is passed without its `transformer_layer_cls`",
    ),
    "clipping by the largest gradient": (
        "model = FSDP(Net())\nmodel.clip_grad_norm_(1.0, norm_type=float('inf'))",
        "torch refuses that",
    ),
    "an init function, and weights of rank 0": (
        "model = FSDP(Net(), param_init_fn=lambda m: m.reset_parameters(), sync_module_states=True)",
        "param_init_fn",
    ),
    "ignored modules": (
        "net = Net()\nmodel = FSDP(net, ignored_modules=[net.blocks[0]])",
        "ignored_modules",
    ),
    "a model on the meta device, and weights of rank 0": (
        "with torch.device('meta'):\n    net = Net()\nmodel = FSDP(net, sync_module_states=True)",
        "on the meta device is wrapped without `param_init_fn`, with `sync_module_states`",
    ),
    "a model that is on the meta device on all ranks in some configurations": (
        "if 'META' in os.environ:\n    with torch.device('meta'):\n        net = Net()\n"
        "else:\n    net = Net()\n"
        "model = FSDP(\n    net,\n    sync_module_states=True,\n"
        "    param_init_fn=lambda m: m.to_empty(device='cuda', recurse=False),\n)",
        "in some configurations rank 0 builds the model on the meta device, too",
    ),
    "a model on the meta device, and ignored parameters": (
        "with torch.device('meta'):\n    net = Net()\n"
        "net.blocks.requires_grad_(False)\nmodel = FSDP(net, ignored_modules=[net.blocks])",
        "on the meta device is wrapped without `param_init_fn`, with ignored parameters",
    ),
    "a model on the meta device, and a policy by size": (
        "from functools import partial\n"
        "from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy\n"
        "def build(policy):\n    with torch.device('meta'):\n        net = Net()\n"
        "    return FSDP(net, auto_wrap_policy=policy)\n\n\n"
        "build(partial(size_based_auto_wrap_policy, min_num_params=10))\n"
        "build(partial(size_based_auto_wrap_policy, min_num_params=20))",
        "on the meta device is wrapped without `param_init_fn`, with a policy by size",
    ),
    "the forward of a part": (
        "model = FSDP(Net(), device_id=0)\n"
        "x = model._fsdp_wrapped_module.blocks[0].forward(torch.randn(2, 8))",
        "`.forward` of a part of the wrapped model",
    ),
    "the forward of a part, without a wrapper in between": (
        "model = FSDP(Net(), device_id=0)\nx = model.blocks[0].forward(torch.randn(2, 8))",
        "`.forward` of a part of the wrapped model",
    ),
    "an argument that a policy does not have": (
        "policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}, "
        "min_num_params=os.cpu_count())\nmodel = FSDP(Net(), auto_wrap_policy=policy)",
        "takes no argument `min_num_params`",
    ),
    "modules that a helper ignores": (
        "def build(model, ignored):\n    return FSDP(model, ignored_modules=ignored)\n\n\n"
        "net = Net()\nmodel = build(net, [net.blocks[0]])",
        "ignored_modules",
    ),
    "a list of ignored modules that grows": (
        "net = Net()\nignored = []\nignored.append(net.blocks[0])\n"
        "model = FSDP(net, ignored_modules=ignored)",
        "ignored_modules",
    ),
    "ignored modules that are frozen in part": (
        "net = Net()\nfor p in list(net.blocks.parameters())[:1]:\n    p.requires_grad = False\n"
        "net.blocks[1].linear.weight.requires_grad_(False)\n"
        "model = FSDP(net, ignored_modules=[net.blocks])",
        "does not show that the parameters in",
    ),
    "ignored modules that are frozen at times": (
        "net = Net()\nif os.environ.get('FREEZE'):\n    net.blocks.requires_grad_(False)\n"
        "model = FSDP(net, ignored_modules=[net.blocks])",
        "does not show that the parameters in",
    ),
    "ignored modules of which a part is trained again": (
        "net = Net()\nnet.requires_grad_(False)\nfor p in net.blocks[0].parameters():\n"
        "    p.requires_grad = True\nmodel = FSDP(net, ignored_modules=[net.blocks])",
        "does not show that the parameters in",
    ),
    "ignored modules that went out of sight": (
        "from library import tune\nnet = Net()\nnet.blocks.requires_grad_(False)\ntune(net)\n"
        "model = FSDP(net, ignored_modules=[net.blocks])",
        "does not show that the parameters in",
    ),
    "quantized weights": (
        "from bitsandbytes.nn import Linear4bit\n"
        "net = Net()\nnet.extra = Linear4bit(8, 8)\nmodel = FSDP(net)",
        "attributes that FSDP2 does not keep",
    ),
    "a model that a loader quantizes": (
        "from transformers import AutoModel, BitsAndBytesConfig\n"
        "config = BitsAndBytesConfig(load_in_4bit=True)\n"
        'model = FSDP(AutoModel.from_pretrained("gpt2", quantization_config=config))',
        "the quantized weights of `load_in_4bit`",
    ),
    "a model in 8 bits": (
        "from transformers import AutoModel\n"
        'model = FSDP(AutoModel.from_pretrained("gpt2", load_in_8bit=True))',
        "the quantized weights of `load_in_8bit`",
    ),
    "arguments out of sight": (
        "def build(**kwargs):\n    return FSDP(Net(), **kwargs)\n\n\nmodel = build()",
        r"is not made in this function",
    ),
    "a state taken elsewhere": (
        "from library import saver\n\n\ndef save(model):\n    saver.write(model)\n\n\n"
        "model = FSDP(Net())\nwith FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
        "    save(model)",
        "a function that this block calls",
    ),
    "buffers of one dtype or another": (
        "class Table(Net):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('table', torch.ones(3))\n\n\n"
        "if os.environ.get('FAST'):\n    precision = MixedPrecision(torch.bfloat16, buffer_dtype=torch.float32)\n"
        "else:\n    precision = MixedPrecision(torch.bfloat16, buffer_dtype=torch.bfloat16)\n"
        "model = FSDP(Table(), mixed_precision=precision)",
        "the `buffer_dtype`",
    ),
    "another library's class under the same name": (
        "try:\n    import torch_xla.core.xla_model as xm\n"
        "    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP\n"
        "except ImportError:\n"
        "    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n    xm = None\n"
        "model = FSDP(Net()) if xm else FSDP(Net(), use_orig_params=True)",
        "`FSDP` is `torch_xla.* in some configurations",
    ),
    "another library's class in a function": (
        "def build():\n    from fairscale.nn import FullyShardedDataParallel as FSDP\n\n"
        "    return FSDP(Net())\n\n\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nmodel = FSDP(Net())",
        "`FSDP` is `fairscale.* in some configurations",
    ),
    "a norm without a name of a model that may be plain": (
        "model = Net()\nif os.environ.get('FSDP'):\n    model = FSDP(model)\n"
        "print(f'{torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0):.2f}')",
        "which happens in some configurations only",
    ),
    "low precision gradients": (
        "model = FSDP(Net(), mixed_precision=MixedPrecision(torch.bfloat16, keep_low_precision_grads=True))",
        "keep_low_precision_grads",
    ),
    "the class as an argument": (
        "wrapped = [cls(Net()) for cls in map(type, [FSDP(Net())])]\nmodel = dict(cls=FSDP)",
        "passed as an argument",
    ),
    "a policy of code out of sight, for another call": (
        "from there import launch, read\n\n\ndef shard(model, policy=None):\n"
        "    return FSDP(model, auto_wrap_policy=policy)\n\n\n"
        "model = shard(Net(), policy=ModuleWrapPolicy({Block}))\n"
        "launch(functools.partial(shard, policy=read()))",
        r"may also be `read\(\)`",
    ),
    "a policy of code out of sight, in a branch that is not taken": (
        "from there import read\n\n\nclass Job:\n    def __init__(self, policy):\n"
        "        self.policy = policy\n\n    def shard(self, model):\n"
        "        return FSDP(model, auto_wrap_policy=self.policy)\n\n\n"
        "def main(other=False):\n    if other:\n        return Job(read()).shard(Net())\n"
        "    return Job(ModuleWrapPolicy({Block})).shard(Net())\n\n\nmain()",
        r"may also be `read\(\)`",
    ),
    "an enclosing context": (
        "with enable_wrap(wrapper_cls=FSDP):\n    pass\nmodel = wrap(Net())\nFSDP(Net())",
        "which `enable_wrap` block",
    ),
    "the optimizer first": (
        "net = Net()\noptimizer = torch.optim.SGD(net.parameters(), lr=1)\nprint(optimizer)\n"
        "model = FSDP(net, use_orig_params=True)",
        "built before the model is wrapped",
    ),
    "a norm of each rank's part": (
        "def norm(model):\n"
        "    total = sum(p.grad.norm() for p in model.parameters())\n"
        "    dist.all_reduce(total)\n    return total\n\n\n"
        "model = FSDP(Net())\nprint(norm(model))",
        "added up without being squared",
    ),
    "a scaler whose class is passed on": (
        "model = FSDP(Net())\nkind = ShardedGradScaler if os.environ.get('FSDP') else None\n"
        "scaler = kind(process_group=dist.new_group([0]))",
        "ShardedGradScaler is not called here",
    ),
    "a scaler whose class gets factors by position": (
        "model = FSDP(Net())\nkind = ShardedGradScaler if os.environ.get('FSDP') else None\n"
        "scaler = kind('cuda', 2.0, 0.5, 2.0)",
        "ShardedGradScaler is not called here",
    ),
    "gradients clipped by the norm of a part": (
        "def clip(model):\n    for p in model.parameters():\n"
        "        p.grad.data.mul_(min(1, 1 / p.grad.data.norm(2).item()))\n\n\n"
        "model = FSDP(Net())\nclip(model)",
        r"`p.grad.data.norm\(2\).item\(\)` reads this rank's part of the gradients",
    ),
    "a norm in a loop of the file": (
        "model = FSDP(Net())\ntotal = torch.zeros(1)\n"
        "for p in model.parameters():\n    total += p.grad.norm() ** 2\ndist.all_reduce(total)",
        r"`p.grad.norm\(\)` reads one rank's part",
    ),
    "gradients that are summed by hand": (
        "model = FSDP(Net())\nfor name, p in model.named_parameters():\n    dist.all_reduce(p.grad)",
        r"`dist.all_reduce\(p.grad\)` reads one rank's part",
    ),
    "parameters that a branch which is not taken broadcasts": (
        "def main(hand=None):\n    model = FSDP(Net())\n    model.train()\n"
        "    if hand is not None:\n        for param in model.parameters():\n"
        "            dist.broadcast(param.data, src=0)\n\n\nmain()",
        r"`dist.broadcast\(param.data, src=0\)` reads one rank's part",
    ),
    "parameters of a compiled model in a branch that is not taken": (
        "def main(hand=None):\n    model = FSDP(Net())\n    model = torch.compile(model)\n"
        "    model.train()\n    if hand is not None:\n        for param in model.parameters():\n"
        "            dist.broadcast(param.data, src=0)\n\n\nmain()",
        r"`dist.broadcast\(param.data, src=0\)` reads one rank's part",
    ),
    "the norm of named parameters in a branch that is not taken": (
        "def main(log=False):\n    model = FSDP(Net())\n    model.train()\n    if log:\n"
        "        norms = {n: p.norm() for n, p in model.named_parameters()}\n"
        "        print(norms)\n\n\nmain()",
        r"`p.norm\(\)` reads one rank's part",
    ),
    "numbered parameters in a branch that is not taken": (
        "def main(log=False):\n    model = FSDP(Net())\n    model.train()\n    if log:\n"
        "        for i, (name, p) in enumerate(list(model.named_parameters())):\n"
        "            print(i, name, p.detach().float().mean().item())\n\n\nmain()",
        r"mean\(\)` reads one rank's part",
    ),
    "a method of the class that is imported from the package": (
        "from torch.distributed.fsdp import state_dict_type\nmodel = FSDP(Net())\n"
        "with state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
        "    state = model.state_dict()",
        r"has no `state_dict_type`: it is a method of",
    ),
    "a parameter as an array": (
        "model = FSDP(nn.Linear(8, 8))\nprint(model.bias.detach().cpu().numpy())",
        "numpy",
    ),
    "a library's function for FSDP": (
        "from library.parallel import prepare_for_fsdp\nmodel = FSDP(Net())\nprepare_for_fsdp(model)",
        "`prepare_for_fsdp` of `library.parallel` gets the wrapped model",
    ),
    "the state of an optimizer in a branch that is not taken": (
        "def save(model, optimizer):\n"
        "    torch.save((model.state_dict(), optimizer.state_dict()), 'x.pt')\n\n\n"
        "def main(keep=False):\n    model = FSDP(Net())\n    model.train()\n"
        "    optimizer = torch.optim.AdamW(model.parameters())\n    if keep:\n"
        "        save(model, optimizer)\n\n\nmain()",
        "does not reach",
    ),
    "a model that a branch replaces": (
        "def main(data=False):\n    model = FSDP(Net())\n    if data:\n"
        "        model = nn.parallel.DistributedDataParallel(Net())\n"
        "        with model.no_sync():\n            pass\n\n\nmain()",
        "does not reach",
    ),
    "the state of the inner module": (
        'model = FSDP(Net())\nmodel.module.load_state_dict(torch.load("x.pt"), assign=True)',
        "rank's flat part",
    ),
    "a copy": (
        "import copy\nmodel = FSDP(Net())\nema = copy.deepcopy(model)",
        "copied",
    ),
    "a policy for a module with wrapped parts": (
        "policy = ModuleWrapPolicy({Block})\nmodel = FSDP(Net(), auto_wrap_policy=policy)\n"
        "model.blocks = FSDP(model.blocks, auto_wrap_policy=policy)",
        "FSDP1 raises ValueError here",
    ),
    "a policy for a model of wrapped blocks": (
        "net = Net()\nnet.blocks[0] = FSDP(net.blocks[0])\n"
        "model = FSDP(net, auto_wrap_policy=always_wrap_policy)",
        "FSDP1 raises ValueError here",
    ),
    "a method on one rank": (
        "model = FSDP(Net())\nif dist.get_rank() == 0:\n    model.generate(torch.ones(2, 8))",
        "only some ranks",
    ),
    "a config for another library": (
        "import accelerate\nFSDP(Net())\n"
        "plugin = accelerate.FullyShardedDataParallelPlugin(mixed_precision_policy=MixedPrecision())",
        "gets this object and expects",
    ),
    "a policy with parameters of its own": (
        "def choose(module):\n    if isinstance(module, Block):\n"
        "        return {'sharding_strategy': ShardingStrategy.SHARD_GRAD_OP}\n    return False\n\n\n"
        "model = FSDP(\n    Net(), sharding_strategy=ShardingStrategy.HYBRID_SHARD,\n"
        "    auto_wrap_policy=CustomPolicy(choose),\n)",
        "another mesh than the model",
    ),
    "a policy with parameters that another function makes for other code, too": (
        "def own():\n    return {'sharding_strategy': ShardingStrategy.SHARD_GRAD_OP}\n\n\n"
        "print(own())\n"
        "def choose(module):\n    return own() if isinstance(module, Block) else False\n\n\n"
        "model = FSDP(Net(), auto_wrap_policy=CustomPolicy(choose))",
        "which arguments this CustomPolicy gives",
    ),
    "a policy with parameters that other code reads": (
        "def choose(module):\n    if isinstance(module, Block):\n"
        "        return {'sharding_strategy': ShardingStrategy.SHARD_GRAD_OP}\n    return False\n\n\n"
        "print(choose(Block()))\n"
        "model = FSDP(Net(), auto_wrap_policy=CustomPolicy(choose))",
        "which arguments this CustomPolicy gives",
    ),
}


@pytest.mark.parametrize(("body", "reason"), list(BLOCKED.values()), ids=list(BLOCKED))
def test_what_has_no_rewrite_blocks(body: str, reason: str, tmp_path: Path) -> None:
    import re

    found, _ = plan(tmp_path, body + "\n")
    assert found.blockers
    assert any(re.search(reason, blocker.reason) for blocker in found.blockers)
    assert not found.edits

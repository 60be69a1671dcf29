"""What becomes of `summon_full_params`, and of squares of gradients that are added up by hand."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
    "read beside a copy under mixed precision": (
        """
        averaged = Net()
        model = FSDP(Net(), mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
        with torch.no_grad(), FSDP.summon_full_params(model):
            for old, new in zip(averaged.parameters(), model.parameters()):
                old.lerp_(new.to(old.dtype), 0.1)
        """,
        """
        averaged = Net()
        model = fully_shard(
            Net(),
            mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        )
        model.reshard()
        with torch.no_grad():
            for old, new in zip(averaged.parameters(), model.parameters()):
                new = new.full_tensor()
                old.lerp_(new.to(old.dtype), 0.1)
        """,
    ),
    "read in comprehensions and as attributes under mixed precision": (
        """
        model = FSDP(Net(), mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
        with FSDP.summon_full_params(model):
            average = {name: p.detach().clone() for name, p in model.named_parameters()}
        with FSDP.summon_full_params(model, writeback=False):
            norms = [p.norm() for p in model.parameters() if p.requires_grad and p.ndim > 1]
            weight = model.blocks[0].linear.weight.detach().clone()
            print(model.blocks[0].linear.weight.shape)
        print(weight.sum())
        """,
        """
        model = fully_shard(
            Net(),
            mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        )
        model.reshard()
        average = {name: p.full_tensor().detach().clone() for name, p in model.named_parameters()}
        model.reshard()
        norms = [p.full_tensor().norm() for p in model.parameters() if p.requires_grad and p.ndim > 1]
        weight = model.blocks[0].linear.weight.full_tensor().detach().clone()
        print(model.blocks[0].linear.weight.shape)
        print(weight.sum())
        """,
    ),
    "returned from the block under mixed precision": (
        """
        def norm_of(model):
            with FSDP.summon_full_params(model, writeback=False):
                return sum(p.detach().norm().item() for p in model.parameters())

        model = FSDP(Net(), mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
        print(norm_of(model))
        """,
        """
        def norm_of(model):
            model.reshard()
            return sum(p.full_tensor().detach().norm().item() for p in model.parameters())

        model = fully_shard(
            Net(),
            mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        )
        print(norm_of(model))
        """,
    ),
    "read": (
        """
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
        with FSDP.summon_full_params(model, writeback=False):
            # all of them
            for name, p in model.module.named_parameters():
                print(name, p.norm())
        """,
        """
        model = Net()
        for submodule in reversed(list(model.modules())):
            if isinstance(submodule, Block):
                fully_shard(submodule)
        fully_shard(model)
        for fsdp_module in model.modules():
            if isinstance(fsdp_module, FSDPModule):
                fsdp_module.unshard()
        # all of them
        for name, p in model.named_parameters():
            print(name, p.norm())
        for fsdp_module in model.modules():
            if isinstance(fsdp_module, FSDPModule):
                fsdp_module.reshard()
        """,
    ),
    "read on rank 0, of a model that is one unit": (
        """
        model = FSDP(Net())
        with torch.no_grad(), FSDP.summon_full_params(model, rank0_only=True):
            if dist.get_rank() == 0:
                print(model.blocks[0].linear.weight)
        """,
        """
        model = fully_shard(Net())
        model.unshard()
        with torch.no_grad():
            if dist.get_rank() == 0:
                print(model.blocks[0].linear.weight)
        model.reshard()
        """,
    ),
    "read, where another call has an argument of the name": (
        """
        model = FSDP(Net())
        trainer = dict(mixed_precision=bool(os.environ.get("AMP")))
        with FSDP.summon_full_params(model, writeback=False):
            print(list(model.parameters())[0].norm())
        """,
        """
        model = fully_shard(Net())
        trainer = dict(mixed_precision=bool(os.environ.get("AMP")))
        model.unshard()
        print(list(model.parameters())[0].norm())
        model.reshard()
        """,
    ),
    "copied, and compared after the block": (
        """
        model = FSDP(Net())
        with FSDP.summon_full_params(model, writeback=False):
            whole = {name: p.detach().clone() for name, p in model.named_parameters()}
        sums = torch.cat([weight.sum().reshape(1) for weight in whole.values()])
        """,
        """
        model = fully_shard(Net())
        model.unshard()
        whole = {name: p.detach().clone() for name, p in model.named_parameters()}
        model.reshard()
        sums = torch.cat([weight.sum().reshape(1) for weight in whole.values()])
        """,
    ),
    "copied to the CPU in another type": (
        """
        model = FSDP(Net())
        whole = {}
        with FSDP.summon_full_params(model, writeback=False):
            for name, p in model.named_parameters():
                whole[name] = p.detach().to("cpu", torch.bfloat16, copy=True)
        sums = torch.cat([weight.float().abs().flatten() for weight in whole.values()])
        """,
        """
        model = fully_shard(Net())
        whole = {}
        model.unshard()
        for name, p in model.named_parameters():
            whole[name] = p.detach().to("cpu", torch.bfloat16, copy=True)
        model.reshard()
        sums = torch.cat([weight.float().abs().flatten() for weight in whole.values()])
        """,
    ),
    "left early": (
        """
        def norm(model):
            with FSDP.summon_full_params(model):
                return sum(p.norm() for p in model.parameters())


        model = FSDP(Net())
        print(norm(model))
        """,
        """
        def norm(model):
            model.unshard()
            try:
                return sum(p.norm() for p in model.parameters())
            finally:
                model.reshard()


        model = fully_shard(Net())
        print(norm(model))
        """,
    ),
    "generation": (
        """
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
        model(torch.ones(2, 8))
        with torch.no_grad():
            with FSDP.summon_full_params(model, recurse=False):
                model.generate(torch.ones(2, 8))
        """,
        """
        model = Net()
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(model)
        model(torch.ones(2, 8))
        with torch.no_grad():
            model.unshard()
            model.generate(torch.ones(2, 8))
            model.reshard()
        """,
    ),
    "read in full precision, on the CPU": (
        """
        shadow = {}
        model = FSDP(Net(), mixed_precision=MixedPrecision(torch.bfloat16))
        with FSDP.summon_full_params(model, writeback=False, offload_to_cpu=True):
            for name, p in model.named_parameters():
                shadow[name] = p.detach().clone()
        """,
        """
        shadow = {}
        model = fully_shard(
            Net(),
            mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        )
        model.reshard()
        for name, p in model.named_parameters():
            p = p.full_tensor().cpu()
            shadow[name] = p.detach().clone()
        """,
    ),
    "an average of a class, which has a method that nothing calls": (
        """
        class Average:
            def __init__(self, fsdp_model, decay=0.9):
                self.decay = decay
                self.shadow = {}
                self._start(fsdp_model)

            def _start(self, fsdp_model):
                with FSDP.summon_full_params(fsdp_model, writeback=False):
                    for name, p in fsdp_model.module.named_parameters():
                        self.shadow[name] = p.detach().clone().float().cpu()

            def update(self, fsdp_model):
                with FSDP.summon_full_params(fsdp_model, writeback=False):
                    for name, p in fsdp_model.module.named_parameters():
                        self.shadow[name].mul_(self.decay).add_(p.float(), alpha=1 - self.decay)

            def restore(self, fsdp_model):
                with FSDP.summon_full_params(fsdp_model):
                    for name, p in fsdp_model.module.named_parameters():
                        p.data.copy_(self.shadow[name])


        model = FSDP(Net(), mixed_precision=MixedPrecision(torch.bfloat16))
        average = Average(model)
        average.update(model)
        """,
        """
        class Average:
            def __init__(self, fsdp_model, decay=0.9):
                self.decay = decay
                self.shadow = {}
                self._start(fsdp_model)

            def _start(self, fsdp_model):
                fsdp_model.reshard()
                for name, p in fsdp_model.named_parameters():
                    p = p.full_tensor()
                    self.shadow[name] = p.detach().clone().float().cpu()

            def update(self, fsdp_model):
                fsdp_model.reshard()
                for name, p in fsdp_model.named_parameters():
                    p = p.full_tensor()
                    self.shadow[name].mul_(self.decay).add_(p.float(), alpha=1 - self.decay)

            def restore(self, fsdp_model):
                for fsdp_module in fsdp_model.modules():
                    if isinstance(fsdp_module, FSDPModule):
                        fsdp_module.reshard()
                for name, p in fsdp_model.named_parameters():
                    p.data.copy_(distribute_tensor(
                        self.shadow[name], p.device_mesh, p.placements, src_data_rank=None
                    ))


        model = fully_shard(
            Net(),
            mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        )
        average = Average(model)
        average.update(model)
        """,
    ),
    "written": (
        """
        shadow = {}
        model = FSDP(Net())
        with FSDP.summon_full_params(model):
            for name, p in model.named_parameters():
                if name in shadow:
                    p.data.copy_(shadow[name])
                else:
                    p.data.mul_(0.5)
        """,
        """
        shadow = {}
        model = fully_shard(Net())
        model.reshard()
        for name, p in model.named_parameters():
            if name in shadow:
                p.data.copy_(distribute_tensor(
                    shadow[name], p.device_mesh, p.placements, src_data_rank=None
                ))
            else:
                p.data.mul_(0.5)
        """,
    ),
    "clipping in code of a class that nothing reaches": (
        """
        CLIPS = False


        class Trainer:
            def __init__(self):
                self.model = FSDP(Net())
                self.optimizer = torch.optim.SGD(self.model.parameters())

            def step(self):
                if CLIPS:
                    self.model.clip_grad_norm_(1.0)
                self.optimizer.step()


        Trainer().step()
        """,
        """
        CLIPS = False


        class Trainer:
            def __init__(self):
                self.model = fully_shard(Net())
                self.optimizer = torch.optim.SGD(self.model.parameters())

            def step(self):
                if CLIPS:
                    torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()


        Trainer().step()
        """,
    ),
    "squares of gradients that are added up": (
        """
        def norm(model):
            total = torch.tensor(0.0, device="cuda")
            for name, p in model.named_parameters():
                if p.grad is None:
                    continue
                total += p.grad.norm(dtype=torch.float32) ** 2
            dist.all_reduce(total)
            return total.item() ** 0.5


        model = FSDP(Net())
        print(norm(model))
        """,
        """
        def norm(model):
            total = torch.tensor(0.0, device="cuda")
            for name, p in model.named_parameters():
                if p.grad is None:
                    continue
                total += p.grad.to_local().norm(dtype=torch.float32) ** 2
            dist.all_reduce(total)
            return total.item() ** 0.5


        model = fully_shard(Net())
        print(norm(model))
        """,
    ),
    "tests for what is not finite": (
        """
        model = FSDP(Net())
        bad = torch.zeros((), dtype=torch.bool, device="cuda")
        for p in model.parameters():
            if p.grad is not None and torch.isnan(p.grad).any():
                p.grad = None
            bad |= p.grad.data.isinf().any()
            torch.nan_to_num(p.grad, nan=0.0, out=p.grad)
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        """,
        """
        model = fully_shard(Net())
        bad = torch.zeros((), dtype=torch.bool, device="cuda")
        for p in model.parameters():
            if p.grad is not None and torch.isnan(p.grad).any():
                p.grad = None
            bad |= p.grad.to_local().data.isinf().any()
            torch.nan_to_num(p.grad, nan=0.0, out=p.grad)
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        """,
    ),
    "a norm of gradients that nobody takes": (
        """
        def clip_each(parameters):
            for p in parameters:
                p.grad.data.mul_(1 / p.grad.data.norm(2).item())


        def step(optimizer, model, loss):
            total = loss.detach()
            dist.all_reduce(total)
            if any(p.grad is None for p in model.parameters()):
                optimizer.zero_grad()


        step(torch.optim.SGD(FSDP(Net()).parameters()), FSDP(Net()), torch.ones(1))
        """,
        """
        def clip_each(parameters):
            for p in parameters:
                p.grad.data.mul_(1 / p.grad.data.norm(2).item())


        def step(optimizer, model, loss):
            total = loss.detach()
            dist.all_reduce(total)
            if any(p.grad is None for p in model.parameters()):
                optimizer.zero_grad()


        step(torch.optim.SGD(fully_shard(Net()).parameters()), fully_shard(Net()), torch.ones(1))
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()

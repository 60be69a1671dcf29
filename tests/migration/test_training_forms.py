"""The text that each form of the training loop is migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import HEAD, migrated

from fsdplint.config.options import Options
from fsdplint.config.target_torch import explicit
from fsdplint.interpreter import load
from fsdplint.migration.planner import plans_of

FORMS = {
    "a norm that was of one rank": (
        """
        model = FSDP(Net())
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        print(f"norm {norm:.3f}")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        """,
        """
        model = fully_shard(Net())
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        print(f"norm {norm:.3f}")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        """,
    ),
    "a wrapper of what cannot be seen, chosen from": (
        """
        from contextlib import nullcontext


        def load():
            return None  # another class has the model


        def build():
            return FSDP(load())


        model = build()
        with model.no_sync() if os.environ.get("HOLD") else nullcontext():
            model(torch.ones(2, 8)).sum().backward()
        """,
        """
        def load():
            return None  # another class has the model


        def build():
            return fully_shard(load())


        model = build()
        model.set_requires_gradient_sync(not os.environ.get("HOLD"))
        model(torch.ones(2, 8)).sum().backward()
        """,
    ),
    "elementwise work on gradients, and a count": (
        """
        model = FSDP(Net())
        for p in model.parameters():
            p.grad.mul_(0.5)
        print(sum(p.numel() for p in model.parameters()))
        """,
        """
        model = fully_shard(Net())
        for p in model.parameters():
            p.grad.mul_(0.5)
        print(sum(p.numel() for p in model.parameters()))
        """,
    ),
    "the method forward": (
        """
        model = FSDP(Net())
        model.forward(torch.ones(2, 8))
        """,
        """
        model = fully_shard(Net())
        model(torch.ones(2, 8))
        """,
    ),
    "a block without effect": (
        """
        model = FSDP(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            torch.save(optimizer.state_dict(), f"{dist.get_rank()}.pt")
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.save(optimizer.state_dict(), f"{dist.get_rank()}.pt")
        """,
    ),
    "a scaler": (
        """
        model = FSDP(Net())
        scaler = ShardedGradScaler(enabled=True)
        """,
        """
        model = fully_shard(Net())
        scaler = torch.amp.GradScaler("cuda", enabled=True)
        """,
    ),
    "a scaler with options from a dict": (
        """
        import yaml

        CONFIG = yaml.safe_load("scaler: {init_scale: 1024.0, growth_interval: 50}")
        model = FSDP(Net())
        scaler = ShardedGradScaler(enabled=True, **CONFIG["scaler"])
        """,
        """
        import yaml

        CONFIG = yaml.safe_load("scaler: {init_scale: 1024.0, growth_interval: 50}")
        model = fully_shard(Net())
        scaler = torch.amp.GradScaler("cuda", enabled=True, **CONFIG["scaler"])
        """,
    ),
    "a scaler whose class is chosen": (
        """
        model = FSDP(Net())
        kind = ShardedGradScaler if os.environ.get("FSDP") else torch.cuda.amp.GradScaler
        scaler = kind(enabled=True)
        """,
        """
        model = fully_shard(Net())
        kind = torch.amp.GradScaler if os.environ.get("FSDP") else torch.cuda.amp.GradScaler
        scaler = kind(enabled=True)
        """,
    ),
    "a scaler whose class a function returns": (
        """
        def scaler_class():
            return ShardedGradScaler


        model = FSDP(Net())
        scaler = scaler_class()(init_scale=2.0**10)
        """,
        """
        def scaler_class():
            return torch.amp.GradScaler


        model = fully_shard(Net())
        scaler = scaler_class()(init_scale=2.0**10)
        """,
    ),
    "a model that is plain in other configurations": (
        """
        from contextlib import nullcontext

        model = FSDP(Net()) if os.environ.get("FSDP") else Net()
        for i in range(4):
            with model.no_sync() if i != 3 else nullcontext():
                model(torch.ones(2, 8)).sum().backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            print(f"{norm:.2f}")
        """,
        """
        model = fully_shard(Net()) if os.environ.get("FSDP") else Net()
        for i in range(4):
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(i == 3)
            model(torch.ones(2, 8)).sum().backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if isinstance(norm, DTensor):
                norm = norm.full_tensor()
            print(f"{norm:.2f}")
        """,
    ),
    "a model that is plain on a single rank": (
        """
        from contextlib import nullcontext

        model = Net()
        if dist.get_world_size() > 1:
            model = FSDP(model)
        for i in range(4):
            with model.no_sync() if i != 3 and dist.get_world_size() > 1 else nullcontext():
                model(torch.ones(2, 8)).sum().backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            print(f"{norm:.2f}")
        """,
        """
        model = Net()
        if dist.get_world_size() > 1:
            fully_shard(model)
        for i in range(4):
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(not (i != 3 and dist.get_world_size() > 1))
            model(torch.ones(2, 8)).sum().backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if isinstance(norm, DTensor):
                norm = norm.full_tensor()
            print(f"{norm:.2f}")
        """,
    ),
    "a model that is plain without a launcher, clipped by its own method with one": (
        """
        model = Net()
        if "RANK" in os.environ:
            model = FSDP(model)
        model(torch.ones(2, 8)).sum().backward()
        if "RANK" in os.environ:
            print(model.clip_grad_norm_(1.0))
        """,
        """
        model = Net()
        if "RANK" in os.environ:
            fully_shard(model)
        model(torch.ones(2, 8)).sum().backward()
        if "RANK" in os.environ:
            print(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor())
        """,
    ),
    "the module inside": (
        """
        model = FSDP(Net())
        print(model.module.blocks, isinstance(model, (FSDP, nn.Module)))
        """,
        """
        model = fully_shard(Net())
        print(model.blocks, isinstance(model, (FSDPModule, nn.Module)))
        """,
    ),
    "a state that DDP's module has in other configurations, in code that is not reached": (
        """
        from torch.nn.parallel import DistributedDataParallel as DDP


        def save(model, ddp):
            if ddp:
                model = model.module
            torch.save(model.state_dict(), "model.pt")


        def main(last=False, use_fsdp=os.environ.get("FSDP")):
            model = FSDP(Net()) if use_fsdp else DDP(Net())
            if last:
                save(model, not use_fsdp)


        main()
        """,
        """
        from torch.nn.parallel import DistributedDataParallel as DDP


        def save(model, ddp):
            if ddp:
                model = model.module if hasattr(model, "module") else model
            torch.save(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), "model.pt")


        def main(last=False, use_fsdp=os.environ.get("FSDP")):
            model = fully_shard(Net()) if use_fsdp else DDP(Net())
            if last:
                save(model, not use_fsdp)


        main()
        """,
    ),
    "the module inside, where there is one": (
        """
        model = FSDP(Net()) if os.environ.get("FSDP") else Net()
        net = model.module if hasattr(model, "module") else model
        print(net.blocks)
        """,
        """
        model = fully_shard(Net()) if os.environ.get("FSDP") else Net()
        net = model.module if hasattr(model, "module") else model
        print(net.blocks)
        """,
    ),
    "a branch that is not taken, before the model is wrapped": (
        """
        def main(start=None):
            model = Net()
            if start:
                model.load_state_dict(torch.load(start))
            model = FSDP(model)
            return model


        main()
        """,
        """
        def main(start=None):
            model = Net()
            if start:
                model.load_state_dict(torch.load(start))
            fully_shard(model)
            return model


        main()
        """,
    ),
    "a branch that is not taken": (
        """
        def clip(model):
            model.clip_grad_norm_(2.0)


        def main(clipped=False, both=False):
            model = FSDP(Net())
            model.train()
            if clipped:
                model.clip_grad_norm_(1.0)
                if both:
                    clip(model)


        main()
        """,
        """
        def clip(model):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)


        def main(clipped=False, both=False):
            model = fully_shard(Net())
            model.train()
            if clipped:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                if both:
                    clip(model)


        main()
        """,
    ),
    "arms in which the model is wrapped, and in which it is not": (
        """
        def save(model):
            torch.save(model.state_dict(), "whole.pt")


        def save_sharded(model):
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                torch.save(model.state_dict(), "whole.pt")


        def main(every=0):
            model = Net()
            use_fsdp = dist.get_world_size() > 1
            if use_fsdp:
                rank = int(os.environ.get("LOCAL_RANK", 0))
                model = FSDP(model, device_id=rank)
            else:
                model = model.cuda()
            if every > 0:
                if use_fsdp:
                    save_sharded(model)
                else:
                    save(model)
            if use_fsdp:
                save_sharded(model)
            else:
                save(model)


        main()
        """,
        """
        def save(model):
            torch.save(model.state_dict(), "whole.pt")


        def save_sharded(model):
            torch.save(get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)), "whole.pt")


        def main(every=0):
            model = Net()
            use_fsdp = dist.get_world_size() > 1
            if use_fsdp:
                fully_shard(model)
            else:
                model = model.cuda()
            if every > 0:
                if use_fsdp:
                    save_sharded(model)
                else:
                    save(model)
            if use_fsdp:
                save_sharded(model)
            else:
                save(model)


        main()
        """,
    ),
    "a compiled model": (
        """
        model = FSDP(Net())
        model = torch.compile(model)
        """,
        """
        model = fully_shard(Net())
        model = torch.compile(model)
        """,
    ),
    "a scaler whose import is guarded": (
        """
        model = FSDP(Net())
        try:
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler as Scaler
        except ImportError:
            Scaler = None
        scaler = Scaler(init_scale=8.0) if Scaler is not None else None
        other = Scaler() if Scaler else torch.amp.GradScaler("cuda")
        """,
        """
        model = fully_shard(Net())
        scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
        other = torch.amp.GradScaler("cuda")
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()


def test_no_line_ends_within_an_f_string(tmp_path: Path) -> None:
    body = """
    net = FSDP(Net(), device_id=local_rank, use_orig_params=True)
    net(torch.ones(1, 8)).sum().backward()
    print(f"the norm of all gradients before clipping is {net.clip_grad_norm_(1.0):.3f} this time")
    """
    text = migrated(tmp_path, body)
    assert "{torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0).full_tensor():.3f}" in text


@pytest.mark.parametrize(("target", "tail"), [(None, ""), ("2.9", ".full_tensor()"), ("2.10", "")])
def test_the_norm_is_put_together_for_an_older_torch(
    tmp_path: Path, target: str | None, tail: str
) -> None:
    (tmp_path / "train.py").write_text(
        HEAD + "model = FSDP(Net())\nmodel(torch.ones(2, 8)).sum().backward()\n"
        "norm = model.clip_grad_norm_(1.0)\nprint(norm.item())\n"
    )
    program = load([tmp_path / "train.py"])
    program.options = Options(target=explicit(target))
    (found,) = plans_of(program)
    assert not found.blockers
    clip = f"torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0){tail}"
    assert clip in {edit.text.strip() for edit in found.edits}

"""The text that each form of the training loop is migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import HEAD, migrated, plan

from fsdplint.config.options import Options
from fsdplint.config.target_torch import explicit
from fsdplint.interpreter import load
from fsdplint.migration.planner import plans_of

FORMS = {
    "a question for no_sync": (
        """
        model = FSDP(Net())
        for i in range(4):
            if i < 3 and hasattr(model, "no_sync"):
                with model.no_sync():
                    model(i).sum().backward()
            else:
                model(i).sum().backward()
        """,
        """
        model = fully_shard(Net())
        for i in range(4):
            if i < 3 and isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(False)
                model(i).sum().backward()
                model.set_requires_gradient_sync(True)
            else:
                model(i).sum().backward()
        """,
    ),
    "what a test says where nobody calls": (
        """
        def clip(model, limit):
            if isinstance(model, FSDP):
                return model.clip_grad_norm_(limit)
            return nn.utils.clip_grad_norm_(model.parameters(), limit)


        def inner(model):
            return model.module if isinstance(model, FSDP) else model


        model = FSDP(Net())
        """,
        """
        def clip(model, limit):
            if isinstance(model, FSDPModule):
                return torch.nn.utils.clip_grad_norm_(model.parameters(), limit).full_tensor()
            return nn.utils.clip_grad_norm_(model.parameters(), limit)


        def inner(model):
            return model


        model = fully_shard(Net())
        """,
    ),
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
    "no_sync looked for in a model that may have several wrappers": (
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            net = FSDP(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        for i in range(4):
            hold = net.no_sync if hasattr(net, "no_sync") and i < 3 else None
            with hold() if hold is not None else nullcontext():
                net(torch.ones(2, 8)).sum().backward()
        """,
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            fully_shard(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        for i in range(4):
            hold = partial(without_gradient_sync, net) if (hasattr(net, "no_sync") or hasattr(net, "set_requires_gradient_sync")) and i < 3 else None
            with hold() if hold is not None else nullcontext():
                net(torch.ones(2, 8)).sum().backward()
        """,
    ),
    "no_sync chosen for a model that may have several wrappers": (
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            net = FSDP(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        for i in range(4):
            with net.no_sync() if i != 3 else nullcontext():
                net(torch.ones(2, 8)).sum().backward()
        """,
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            fully_shard(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        for i in range(4):
            with without_gradient_sync(net) if i != 3 else nullcontext():
                net(torch.ones(2, 8)).sum().backward()
        """,
    ),
    "no_sync that a variable keeps from one time to the next": (
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            net = FSDP(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        hold = nullcontext
        for i in range(4):
            if isinstance(net, FSDP) and i != 3:
                hold = net.no_sync
            with hold():
                net(torch.ones(2, 8)).sum().backward()
        """,
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            fully_shard(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        hold = nullcontext
        for i in range(4):
            if isinstance(net, FSDPModule) and i != 3:
                hold = partial(without_gradient_sync, net)
            with hold():
                net(torch.ones(2, 8)).sum().backward()
        """,
    ),
    "no_sync of a model that may have several wrappers": (
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            net = FSDP(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        if hasattr(net, "no_sync"):
            with net.no_sync():
                net(torch.ones(2, 8)).sum().backward()
        """,
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            fully_shard(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        if (hasattr(net, "no_sync") or hasattr(net, "set_requires_gradient_sync")):
            with without_gradient_sync(net):
                net(torch.ones(2, 8)).sum().backward()
        """,
    ),
    "no_sync held for a model that may be DDP's": (
        """
        from contextlib import nullcontext

        model = Net()
        if os.environ.get("FSDP"):
            model = FSDP(model)
        else:
            model = nn.parallel.DistributedDataParallel(model)
        for i in range(4):
            context = nullcontext
            # Only the last one reduces.
            if isinstance(model, FSDP) and i != 3:
                context = model.no_sync
            with context():
                model(torch.ones(2, 8)).sum().backward()
        for i in range(4):
            maybe_no_sync = nullcontext()
            if i != 3 and isinstance(model, FSDP):
                maybe_no_sync = model.no_sync()
            with maybe_no_sync:
                if i == int(os.environ["PARTS"]):
                    break
                model(torch.ones(2, 8)).sum().backward()
        """,
        """
        model = Net()
        if os.environ.get("FSDP"):
            fully_shard(model)
        else:
            model = nn.parallel.DistributedDataParallel(model)
        for i in range(4):
            # Only the last one reduces.
            if isinstance(model, FSDPModule) and i != 3:
                model.set_requires_gradient_sync(False)
            model(torch.ones(2, 8)).sum().backward()
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(True)
        for i in range(4):
            if i != 3 and isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(False)
            try:
                if i == int(os.environ["PARTS"]):
                    break
                model(torch.ones(2, 8)).sum().backward()
            finally:
                if isinstance(model, FSDPModule):
                    model.set_requires_gradient_sync(True)
        """,
    ),
    "no_sync in a loop that goes on after an exception": (
        """
        from contextlib import nullcontext

        model = FSDP(Net())
        for i in range(4):
            try:
                with model.no_sync():
                    model(torch.ones(2, 8)).sum().backward()
            except RuntimeError as error:
                print(error)
            context = model.no_sync if i != 3 else nullcontext
            with context():
                if i == 2:
                    continue
                model(torch.ones(2, 8)).sum().backward()
        """,
        """
        model = fully_shard(Net())
        for i in range(4):
            try:
                model.set_requires_gradient_sync(False)
                try:
                    model(torch.ones(2, 8)).sum().backward()
                finally:
                    model.set_requires_gradient_sync(True)
            except RuntimeError as error:
                print(error)
            model.set_requires_gradient_sync(i == 3)
            try:
                if i == 2:
                    continue
                model(torch.ones(2, 8)).sum().backward()
            finally:
                model.set_requires_gradient_sync(True)
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
    "no_sync on a stack under a test, and as a result": (
        """
        from contextlib import ExitStack, nullcontext

        model = FSDP(Net())


        def held(i):
            if i < 2:
                return model.no_sync()
            return nullcontext()


        for i in range(4):
            with ExitStack() as stack:
                if i != 3:
                    stack.enter_context(model.no_sync())
                model(torch.ones(2, 8)).sum().backward()
            with held(i):
                model(torch.ones(2, 8)).sum().backward()
        """,
        """
        from contextlib import ExitStack, nullcontext

        model = fully_shard(Net())


        def held(i):
            if i < 2:
                return without_gradient_sync(model)
            return nullcontext()


        for i in range(4):
            with ExitStack() as stack:
                if i != 3:
                    stack.enter_context(without_gradient_sync(model))
                model(torch.ones(2, 8)).sum().backward()
            with held(i):
                model(torch.ones(2, 8)).sum().backward()
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


@pytest.mark.parametrize("name", [name for name in FORMS if "several wrappers" in name])
def test_a_model_with_another_wrapper_keeps_its_no_sync(name: str, tmp_path: Path) -> None:
    _, text = plan(tmp_path, FORMS[name][0])
    other = """
    if not hasattr(model, "set_requires_gradient_sync"):
        with model.no_sync():
            yield
        return
"""
    assert other in text

"""The text that each form of state dicts and checkpoints is migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
    "a library that takes the state itself": (
        """
        import transformers

        model = FSDP(transformers.AutoModel.from_pretrained("x"))
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            model.save_pretrained("out")
        """,
        """
        import transformers

        model = fully_shard(transformers.AutoModel.from_pretrained("x"))
        config = StateDictOptions(full_state_dict=True, cpu_offload=True)
        model.save_pretrained("out", state_dict=get_model_state_dict(model, options=config))
        """,
    ),
    "parts of a library's model that hold no state": (
        """
        import transformers

        model = FSDP(transformers.AutoModelForCausalLM.from_pretrained("x"))
        if dist.get_rank() == 0:
            model.config.save_pretrained("out")
            model.module.generation_config.save_pretrained("out")
            model._fsdp_wrapped_module.tokenizer.push_to_hub("out")
        """,
        """
        import transformers

        model = fully_shard(transformers.AutoModelForCausalLM.from_pretrained("x"))
        if dist.get_rank() == 0:
            model.config.save_pretrained("out")
            model.generation_config.save_pretrained("out")
            model.tokenizer.push_to_hub("out")
        """,
    ),
    "a library's model that is quantized where it is not sharded": (
        """
        import sys
        from transformers import AutoModelForCausalLM

        quantize, sharded = "quantize" in sys.argv, "sharded" in sys.argv
        model = AutoModelForCausalLM.from_pretrained("x", load_in_8bit=True if quantize else None)
        if sharded:
            model = FSDP(model)
        model.save_pretrained("out")
        """,
        """
        import sys
        from transformers import AutoModelForCausalLM

        quantize, sharded = "quantize" in sys.argv, "sharded" in sys.argv
        model = AutoModelForCausalLM.from_pretrained("x", load_in_8bit=True if quantize else None)
        if sharded:
            fully_shard(model)
        model.save_pretrained(
            "out",
            state_dict=get_model_state_dict(
                model, options=StateDictOptions(full_state_dict=True)
            ) if isinstance(model, FSDPModule) else None,
        )
        """,
    ),
    "local states that are saved and loaded": (
        """
        model = FSDP(Net())
        path = f"{dist.get_rank()}.pt"
        config = LocalStateDictConfig(offload_to_cpu=True)
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT, config):
            torch.save(model.state_dict(), path)
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT, LocalStateDictConfig()):
            model.load_state_dict(torch.load(path))
        """,
        """
        model = fully_shard(Net())
        path = f"{dist.get_rank()}.pt"
        config = StateDictOptions(cpu_offload=True)
        torch.save(get_model_state_dict(model, options=config), path)
        set_model_state_dict(model, torch.load(path))
        """,
    ),
    "the first rank of a group": (
        """
        model = FSDP(Net(), process_group=dist.new_group([0, 1]))
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            state = model.state_dict()
        """,
        """
        model = fully_shard(Net(), mesh=DeviceMesh.from_group(dist.new_group([0, 1]), "cuda"))
        state = gather_state_dict(model)
        """,
    ),
    "offloading that is chosen at run time": (
        """
        def save(model, offload):
            config = ShardedStateDictConfig(offload_to_cpu=offload)
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, config):
                return model.state_dict()


        save(FSDP(Net()), bool(os.environ.get("OFFLOAD")))
        """,
        """
        def save(model, offload):
            config = StateDictOptions(cpu_offload=offload)
            return get_model_state_dict(model, options=config)


        save(fully_shard(Net()), bool(os.environ.get("OFFLOAD")))
        """,
    ),
    "ranks that are chosen at run time": (
        """
        def save(model, first_only=True):
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=first_only)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
                return model.state_dict()


        save(FSDP(Net()), not os.environ.get("EVERYWHERE"))
        """,
        """
        def save(model, first_only=True):
            config = StateDictOptions(full_state_dict=True, cpu_offload=first_only)
            return get_model_state_dict(model, options=config)


        save(fully_shard(Net()), not os.environ.get("EVERYWHERE"))
        """,
    ),
    "branches that are not taken": (
        """
        def save(m, path):
            state = m.state_dict()
            if dist.get_rank() == 0:
                torch.save(state, path)


        def main(clip=False, load=False):
            model = FSDP(Net())
            if load:
                model.load_state_dict(torch.load("x.pt"))
            if clip:
                model.clip_grad_norm_(1.0)
                save(model, "x")


        main()
        """,
        """
        def save(m, path):
            state = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))
            if dist.get_rank() == 0:
                torch.save(state, path)


        def main(clip=False, load=False):
            model = fully_shard(Net())
            if load:
                set_model_state_dict(
                    model, torch.load("x.pt"), options=StateDictOptions(full_state_dict=True)
                )
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                save(model, "x")


        main()
        """,
    ),
    "a function for a wrapped model and another": (
        """
        def save(model, path):
            torch.save(model.state_dict(), path)

        save(FSDP(Net()), "a.pt")
        save(Net(), "b.pt")
        """,
        """
        def save(model, path):
            torch.save(get_model_state_dict(
                model, options=StateDictOptions(full_state_dict=True)
            ), path)

        save(fully_shard(Net()), "a.pt")
        save(Net(), "b.pt")
        """,
    ),
    "a model that FSDP1 or DDP wraps": (
        """
        from torch.nn.parallel import DistributedDataParallel


        def save(model, path):
            weights = model.state_dict()
            torch.save({"model": model.state_dict()}, path)
            return weights


        def load(model, path):
            state = torch.load(path)
            model.load_state_dict(state)


        for wrapped in (FSDP(Net()), DistributedDataParallel(Net())):
            save(wrapped, "a.pt")
            load(wrapped, "a.pt")
        """,
        """
        from torch.nn.parallel import DistributedDataParallel


        def save(model, path):
            if isinstance(model, FSDPModule):
                weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
            else:
                weights = model.state_dict()
            torch.save({"model": get_model_state_dict(
                model, options=StateDictOptions(full_state_dict=True)
            ) if isinstance(model, FSDPModule) else model.state_dict()}, path)
            return weights


        def load(model, path):
            state = torch.load(path)
            if isinstance(model, FSDPModule):
                set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))
            else:
                model.load_state_dict(state)


        for wrapped in (fully_shard(Net()), DistributedDataParallel(Net())):
            save(wrapped, "a.pt")
            load(wrapped, "a.pt")
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()

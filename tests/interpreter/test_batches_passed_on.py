"""Batches of the rank that reach the training through generators and wrappers of the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program


@pytest.mark.parametrize(
    "passes",
    [
        "enumerate(batches(loader), 1)",
        "enumerate(batches(loader), start=1)",
        "enumerate(tqdm(batches(loader), 'training'))",
    ],
)
def test_batches_that_a_generator_passes_on_are_the_rank_s_own(tmp_path: Path, passes: str) -> None:
    found = program(
        tmp_path,
        f"""
        from torch.utils.data import DataLoader, DistributedSampler
        from tqdm import tqdm
        from samples import samples

        def batches(loader):
            iterator = iter(loader)
            while True:
                try:
                    batch = next(iterator)
                    yield batch
                except StopIteration:
                    break

        dist.init_process_group("nccl")
        data = samples()
        loader = DataLoader(data, sampler=DistributedSampler(data))
        model = fully_shard(Net())
        for step, batch in {passes}:
            loss = model(batch).mean()
            if torch.isnan(loss):
                continue
            loss.backward()
        """,
    )
    assert [one.rule.code for one in findings(found, "FSDP501")] == ["FSDP501"]


@pytest.mark.parametrize(
    ("test", "codes"),
    [("step % 2 == 0", []), ("batch.mean() > 0", ["FSDP501"])],
)
def test_the_number_of_a_turn_is_no_batch(tmp_path: Path, test: str, codes: list[str]) -> None:
    found = program(
        tmp_path,
        f"""
        from torch.utils.data import DataLoader, DistributedSampler
        from samples import samples

        dist.init_process_group("nccl")
        data = samples()
        loader = DataLoader(data, sampler=DistributedSampler(data))
        model = fully_shard(Net())
        turns = iter(enumerate(loader))
        while True:
            try:
                step, batch = next(turns)
            except StopIteration:
                break
            if {test}:
                model(batch)
        """,
    )
    assert [one.rule.code for one in findings(found, "FSDP501")] == codes

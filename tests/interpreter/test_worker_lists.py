"""Workers in a list whose methods are called together with elements of an unknown length."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import BackwardRun, OptimizerStepped, Sharded

WORKERS = """
import sys
import ray

class Worker:
    def __init__(self, rank):
        self.rank, self.queue = rank, None

    def setup(self):
        self.model = Net()
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def use(self, queue):
        self.queue = queue

    def train(self):
        if self.queue is None:
            raise RuntimeError("no queue")
        self.model(torch.rand(4, 8)).sum().backward()
        self.optimizer.step()

Actor = ray.remote(num_gpus=1)(Worker)
workers = []
for rank in range(int(sys.argv[1])):
    worker = Actor.options(num_cpus=1).remote(rank)
    if rank == 0:
        address = ray.get(worker.address.remote())
    workers.append(worker)
ray.get([worker.setup.remote() for worker in workers])
queues = ray.get(sys.argv[2])
"""
GIVEN = {
    "zip": "zip(workers, queues)",
    "strict": "zip(workers, queues, strict=True)",
    "second": "((worker, queue) for queue, worker in zip(queues, workers))",
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_each_worker_gets_its_element(tmp_path: Path, given: str) -> None:
    body = f"{WORKERS}\nray.get([worker.use.remote(queue) for worker, queue in {given}])\n"
    body += "ray.get([worker.train.remote() for worker in workers])\n"
    found = program(tmp_path, body)
    for kind in (Sharded, BackwardRun, OptimizerStepped):
        assert any(events(found, kind)), kind

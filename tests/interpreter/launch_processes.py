"""Programs that other processes start: spawn, threads, elastic agents, notebooks, Ray.

Each has the imports, the definitions and the statement that starts it.
"""

from __future__ import annotations

PROCESSES = {
    "plain": ("", "", "step(0)"),
    "mp.spawn": ("", "", "mp.spawn(step, args=(2,), nprocs=2, join=True)"),
    "mp.spawn kw": ("", "", "mp.spawn(fn=step, args=(2, None), nprocs=2)"),
    "mp.spawn starargs": (
        "",
        "",
        """\
a=(2,)
mp.spawn(step, a, nprocs=2)
""",
    ),
    "mp.spawn lambda": ("", "", "mp.spawn(lambda r: step(r), nprocs=2)"),
    "mp.spawn partial": ("", "", "mp.spawn(functools.partial(step, world_size=2), nprocs=2)"),
    "torch.mp.spawn": ("", "", "torch.multiprocessing.spawn(step, args=(2,), nprocs=2)"),
    "start_processes": (
        "",
        "",
        "mp.start_processes(step, args=(2,), nprocs=2, start_method='spawn')",
    ),
    "from spawn": (
        "from torch.multiprocessing import spawn",
        "",
        "spawn(step, args=(2,), nprocs=2)",
    ),
    "spawn method": (
        "",
        """\
class T:
    def run(self, rank):
        step(rank)
""",
        "mp.spawn(T().run, nprocs=2)",
    ),
    "spawn callable instance": (
        "",
        """\
class T:
    def __call__(self, rank):
        step(rank)
""",
        "mp.spawn(T(), nprocs=2)",
    ),
    "Process": (
        "",
        "",
        """\
p = mp.Process(target=step, args=(0, 2))
p.start()
p.join()
""",
    ),
    "Process kwargs": (
        "",
        "",
        """\
p = mp.Process(target=step, kwargs=dict(rank=0))
p.start()
""",
    ),
    "Process loop": (
        "",
        "",
        """\
ps = []
for rank in range(2):
    p = mp.Process(target=step, args=(rank, 2))
    p.start()
    ps.append(p)
for p in ps:
    p.join()
""",
    ),
    "Process python": (
        "",
        "",
        """\
p = multiprocessing.Process(target=step, args=(0, 2))
p.start()
""",
    ),
    "Process context": (
        "",
        "",
        """\
ctx = mp.get_context('spawn')
p = ctx.Process(target=step, args=(0, 2))
p.start()
""",
    ),
    "Thread": (
        "import threading",
        "",
        """\
t = threading.Thread(target=step, args=(0,))
t.start()
""",
    ),
    "elastic_launch": (
        "from torch.distributed.launcher.api import elastic_launch, LaunchConfig",
        "",
        "elastic_launch(LaunchConfig(1, 1, 2), step)(0, 2)",
    ),
    "elastic_launch kw": (
        "from torch.distributed.launcher.api import elastic_launch, LaunchConfig",
        "",
        "elastic_launch(config=LaunchConfig(1, 1, 2), entrypoint=step)(0, 2)",
    ),
    "launcher pkg": (
        "import torch.distributed.launcher as pet",
        "",
        "pet.elastic_launch(pet.LaunchConfig(1, 1, 2), entrypoint=step)(0, 2)",
    ),
    "launch_agent": (
        "from torch.distributed.launcher.api import launch_agent, LaunchConfig",
        "",
        "launch_agent(LaunchConfig(1, 1, 2), step, [0, 2])",
    ),
    "notebook_launcher": (
        "from accelerate import notebook_launcher",
        "",
        "notebook_launcher(step, (0, 2), num_processes=2)",
    ),
    "ray": (
        """\
from ray.train.torch import TorchTrainer
from ray.train import ScalingConfig
""",
        "",
        """\
trainer = TorchTrainer(train_loop_per_worker=step, train_loop_config={'a': 1}, scaling_config=ScalingConfig(num_workers=2))
trainer.fit()
""",
    ),
    "ray pos": (
        "import ray.train.torch",
        "",
        "ray.train.torch.TorchTrainer(step, scaling_config=None).fit()",
    ),
    "ray.remote": (
        "import ray",
        """\
@ray.remote(num_gpus=1)
def work(r):
    step(r)
""",
        "ray.get([work.remote(r) for r in range(2)])",
    ),
    "ray.remote plain": (
        "import ray",
        """\
@ray.remote
def work(r):
    step(r)
""",
        "ray.get([work.remote(r) for r in range(2)])",
    ),
    "ray.remote class": (
        "import ray",
        """\
@ray.remote
class W:
    def __init__(self, r):
        self.r = r
    def train(self):
        step(self.r)
""",
        """\
ws = [W.remote(r) for r in range(2)]
ray.get([w.train.remote() for w in ws])
""",
    ),
    "ray.remote call": (
        "import ray",
        "",
        """\
f = ray.remote(step)
ray.get(f.remote(0))
""",
    ),
    "ray.remote options": (
        "import ray",
        """\
@ray.remote
def work(r):
    step(r)
""",
        "ray.get(work.options(num_gpus=1).remote(0))",
    ),
}

"""Generators that nothing seeds: each process draws numbers of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

BEGIN = (
    "import random\nimport numpy as np\nimport torch.multiprocessing as mp\n"
    "dist.init_process_group('gloo')\nmodel = Net()\nfully_shard(model)\n"
)
OWN = [
    "if random.random() < 0.5:\n    model(x)\n",
    "if np.random.rand() < 0.5:\n    model(x)\n",
    "for _ in range(random.randint(1, 3)):\n    model(x)\n",
    "if random.choice(['a', 'b']) == 'a':\n    model(x)\n",
    "draws = random.Random()\nif draws.random() < 0.5:\n    model(x)\n",
    "draws = np.random.default_rng()\nif draws.random() < 0.5:\n    model(x)\n",
    "np.random.seed(0)\nif random.random() < 0.5:\n    model(x)\n",
    "import transformers\ntransformers.logging.set_verbosity_error()\n"
    "if random.random() < 0.5:\n    model(x)\n",
]
SEEDED = [
    "draws = random.Random()\ndraws.seed(0)\nif draws.random() < 0.5:\n    model(x)\n",
    "random.seed(0)\nif random.random() < 0.5:\n    model(x)\n",
    "np.random.seed(0)\nif np.random.rand() < 0.5:\n    model(x)\n",
    "draws = random.Random(0)\nif draws.random() < 0.5:\n    model(x)\n",
    "import transformers\ntransformers.set_seed(0)\nif random.random() < 0.5:\n    model(x)\n",
    "state = torch.load('state.pt')\nrandom.setstate(state)\n"
    "if random.random() < 0.5:\n    model(x)\n",
    "state = torch.load('state.pt')\nnp.random.set_state(state)\n"
    "if np.random.rand() < 0.5:\n    model(x)\n",
    "import zoo\nzoo.begin()\nif random.random() < 0.5:\n    model(x)\n",
    "import transformers\ntransformers.Trainer(model)\nif random.random() < 0.5:\n    model(x)\n",
    "if torch.rand(1) < 0.5:\n    model(x)\n",  # torch has the same seed in each process
    "def train(rank):\n    if random.random() < 0.5:\n        model(x)\nmp.spawn(train)\n",
]


@pytest.mark.parametrize("code", OWN)
def test_each_rank_decides_by_draws_that_nothing_seeds(tmp_path: Path, code: str) -> None:
    assert findings(program(tmp_path, BEGIN + code), "FSDP501")


@pytest.mark.parametrize("code", SEEDED)
def test_draws_that_may_be_the_same_on_all_ranks(tmp_path: Path, code: str) -> None:
    assert not findings(program(tmp_path, BEGIN + code), "FSDP501")


def test_a_function_that_nothing_calls(tmp_path: Path) -> None:
    code = "def train():\n    " + (BEGIN + OWN[0]).replace("\n", "\n    ")
    assert not findings(program(tmp_path, code), "FSDP501")

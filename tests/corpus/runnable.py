"""Public FSDP1 programs made runnable with tiny models and random data, migrated, and proven.

    python tests/corpus/runnable.py CORPUS [--only TEXT] [--keep FOLDER] [--out FILE] [--ranks 2]

CORPUS has a folder for each repository (owner__name). A program's folder is copied to a temporary one,
what it needs and is not here (packages, models, data) is put beside it from `stubs`, a few short places in
it are replaced, and `fsdplint prove` runs it before and after the migration. Nothing of the programs is
kept here but the anchors of the replacements. Those that import `transformers` need it installed; where it
is not, they are left out. Not a test: `pytest` does not collect it.

The table has a line for each program: what became of its fixes, its exit code, optimizer steps, ranks,
the comparisons that do not hold.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from proof_tables import HEADER, Result, in_a_process, prove

STUBS = Path(__file__).parent / "stubs"
WORKERS = ("'num_workers': 2", "'num_workers': 0")  # starting them takes longer than the training
HUB = "import tiny_hub"


@dataclass(frozen=True)
class Recipe:
    """How to run one program.

    Attributes:
        folder: what is copied, below the corpus; the script lies in it.
        stubs: what is put beside the script, by the name that it gets there.
        replaced: by file, the places that are replaced (each occurs at least once).
        files: further files beside the script.
        hub: the script gets models and tokenizers from `tiny_hub` and transformers.
    """

    folder: str
    script: str
    args: tuple[str, ...] = ()
    stubs: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    hub: bool = False
    steps: int | None = None

    @property
    def name(self) -> str:
        return f"{self.folder}/{self.script}"


def _sentences(count: int) -> str:
    words = "shard gather reduce step rank mesh block norm".split()
    lines = (
        {"input": " ".join(words[i % 5 : i % 5 + 3]), "target": " ".join(words[i % 7 :])}
        for i in range(count)
    )
    return "".join(json.dumps(line) + "\n" for line in lines)


RECIPES = (
    Recipe("arisel117__DistributedLearning", "main_fsdp.py", ("--num_workers", "0"), steps=12),
    Recipe(
        "aidando73__hello-distributed-data-parallel",
        "fsdp.py",
        ("--epochs", "2", "--batch-size", "8", "--save-model"),
        {"torchvision.py": "torchvision.py"},
        {"fsdp.py": (WORKERS,)},
    ),
    Recipe(
        "nikhilbarhate99__pytorch-fsdp-ray",
        "run_fsdp.py",
        ("--epochs", "2", "--batch-size", "8", "--save-model"),
        {"torchvision.py": "torchvision.py", "wandb.py": "wandb.py"},
        {
            "run_fsdp.py": (
                WORKERS,
                ("round(ddp_loss[0] / ddp_loss[1], 6)", "float(ddp_loss[0] / ddp_loss[1])"),
                ("round(ddp_loss[0] / ddp_loss[2], 6)", "float(ddp_loss[0] / ddp_loss[2])"),
            )
        },
    ),
    Recipe(
        "VentusAislant__MyDemos/my_demos/DDP_demos",
        "DDP4_fsdp_torchrun_training.py",
        ("--batch_size", "2", "--num_epochs", "1", "--save_every", "1", "--output_dir", "out"),
        {"datasets.py": "image_datasets.py", "tqdm.py": "tqdm.py"},
        {"DDP4_fsdp_torchrun_training.py": (("num_workers=2", "num_workers=0"),)},
    ),
    Recipe(
        "Jack31098__llm_training_demo/fsdp",
        "train_fsdp.py",
        (
            *("--model_name_or_path", "tiny", "--train_json", "train.jsonl", "--seq_len", "48"),
            *("--micro_batch_size", "2", "--max_steps", "4", "--lr", "1e-3", "--pack_sequences"),
            *("--fsdp_wrap_min_params", "4000", "--max_grad_norm", "0.5"),
        ),
        files={"train.jsonl": _sentences(40)},
        hub=True,
    ),
    Recipe(
        "pytorch__examples/distributed/FSDP",
        "T5_training.py",
        ("--epochs", "1"),
        {"nlp": "text_datasets"},
        {
            "T5_training.py": (
                WORKERS,
                ("1500, 512, 150", "24, 48, 24"),
                ("300, 512, 150", "8, 48, 24"),
            ),
            "summarization_dataset.py": (("import pandas as pd", ""), ("    AdamW,", "")),
            "utils/environment.py": (
                ("from pkg_resources import packaging", "import packaging.version"),
            ),
        },
        hub=True,
    ),
    Recipe(
        "idriscnrs__bench_fsdp_dlojz",
        "fsdp.py",
        ("--bsz", "2", "--seq-len", "32", "--num-workers", "0", "--lr", "1e-3"),
        {
            "datasets": "text_datasets",
            "idr_torch.py": "idr_torch.py",
            "torchmetrics": "torchmetrics",
            "pynvml": "pynvml",
        },
        {"fsdp.py": (("prefetch_factor=args.prefetch_factor,", ""),)},
        env={"SCRATCH": "."},
        hub=True,
    ),
    Recipe(
        "wdlctc__lc",
        "fsdp_train.py",
        ("--batch_size", "2", "--max_length", "32", "--eval_every", "4"),
        {"datasets": "text_datasets"},
        {
            "fsdp_train.py": (
                ("TrainingArguments, TextDataset, DataCollatorForLanguageModeling, Trainer, ", ""),
            )
        },
        hub=True,
    ),
    Recipe(
        "abacaj__fine-tune-mistral",
        "train.py",
        (),
        {
            "datasets": "text_datasets",
            "wandb.py": "wandb.py",
            "dotenv.py": "dotenv.py",
            "numba.py": "numba.py",
        },
        {
            "train.py": (
                ("max_length = 2048", "max_length = 128"),
                ("run_id = str(uuid.uuid4())", 'run_id = "run"'),
            )
        },
        env={"HF_TOKEN": "none"},
        hub=True,
        steps=6,
    ),
)


def prepare(recipe: Recipe, corpus: Path, folder: Path) -> Path:
    """A copy of the program that runs here; gives its script."""
    shutil.copytree(corpus / recipe.folder, folder, ignore=_only_code)
    (folder / ".git").mkdir(exist_ok=True)  # its root, as in a checkout
    for name, stub in recipe.stubs.items():
        if (STUBS / stub).is_dir():
            shutil.copytree(STUBS / stub, folder / name)
        else:
            shutil.copy(STUBS / stub, folder / name)
    for name, places in recipe.replaced.items():
        text = (folder / name).read_text(encoding="utf-8")
        for old, new in places:
            if old not in text:
                raise ValueError(f"{recipe.folder}/{name} has no {old!r}: it is another version")
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
    for name, text in recipe.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    script = folder / recipe.script
    if recipe.hub:
        shutil.copy(STUBS / "tiny_hub.py", folder)
        text = script.read_text(encoding="utf-8")
        script.write_text(text.replace("import torch\n", f"import torch\n{HUB}\n", 1), "utf-8")
    return script


def _only_code(folder: str, names: list[str]) -> list[str]:
    kept = (".py", ".json")
    return [one for one in names if not one.endswith(kept) and not Path(folder, one).is_dir()]


def proof(recipe: Recipe, script: Path, options: argparse.Namespace) -> Result:
    given = ["--device", options.device, "--nproc-per-node", str(options.ranks)]
    given += ["--timeout", str(options.timeout)]
    if recipe.steps is not None:
        given += ["--steps", str(recipe.steps)]
    env = {**recipe.env, "TOKENIZERS_PARALLELISM": "false"}
    run = partial(in_a_process, env=env)
    return prove(recipe.name, script, recipe.args, given, run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    parser.add_argument("--keep", type=Path, help="a new folder for the copies and reports")
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--timeout", type=float, default=300.0)
    options = parser.parse_args()
    print(HEADER, file=options.out)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.keep or Path(temporary)
        for recipe in RECIPES:
            if options.only not in recipe.name:
                continue
            if recipe.hub and importlib.util.find_spec("transformers") is None:
                print(Result(recipe.name, problem="needs transformers").line(), file=options.out)
                continue
            script = prepare(recipe, options.corpus, work / recipe.folder.replace("/", "__"))
            print(proof(recipe, script, options).line(), file=options.out, flush=True)


if __name__ == "__main__":
    main()

"""What a generated program may have: its description is one choice for each feature.

The first choice of a feature is the simplest. Shrinking a program replaces choices by the first ones.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

Description = dict[str, str]

FEATURES: Mapping[str, tuple[str, ...]] = {
    # How the program is written.
    "layout": ("flat", "functions", "class", "files"),
    "arguments": ("keywords", "variables", "dict", "items", "partial", "helper", "method"),
    "config": ("literals", "argparse", "dataclass", "dictionary"),
    "imports": ("alias", "name", "module", "renamed"),
    "device": ("cpu", "cuda"),
    "placement": ("device_id", "moved", "current"),
    # The model.
    "model": ("vectors", "tokens"),
    "blocks": ("list", "sequential", "dict"),
    "nesting": ("no", "yes"),
    "attention": ("no", "yes"),
    "buffer": ("none", "float", "counter", "not_persistent"),
    "mask": ("no", "positional", "keyword"),
    "inputs": ("float32", "float64", "bfloat16"),
    "tied": ("no", "yes"),
    "frozen": ("none", "embedding", "first_block", "biases"),
    "ignored": ("none", "modules", "states", "parameters"),
    # Sharding.
    "policy": (
        *("none", "transformer", "module_wrap", "size", "lambda", "custom", "custom_arguments"),
        *("always", "or", "function", "wrap", "wrap_in_constructor", "by_hand"),
    ),
    "strategy": (
        *("default", "full", "grad_op", "no_shard", "group", "mesh"),
        *("hybrid", "hybrid_groups", "hybrid_mesh", "hybrid_zero2"),
    ),
    "precision": ("none", "params", "reduce", "mixed", "all", "fp16", "buffers", "wider_reduce"),
    "casts": ("default", "no_root", "forward", "neither"),
    "offload": ("none", "yes", "off"),
    "init": ("seed", "sync", "meta_reset", "meta_function", "meta_sync"),
    "orig_params": ("true", "omitted", "false"),
    "backward_prefetch": ("omitted", "pre", "post", "none"),
    "forward_prefetch": ("omitted", "yes"),
    "limit": ("omitted", "yes", "no"),
    "checkpointing": ("none", "before", "after", "in_constructor"),
    "compile": ("none", "model", "blocks", "before"),
    # Training.
    "optimizer": ("sgd", "adamw", "adam", "momentum", "adagrad"),
    "groups": ("one", "by_name", "by_ndim", "by_part"),
    "scheduler": ("none", "cosine", "lambda", "step"),
    "accumulation": ("none", "no_sync", "conditional", "stack", "plain"),
    "clip": ("measure", "none", "two", "one", "infinite", "keyword"),
    "scaler": ("none", "yes", "unscale"),
    "ema": ("none", "dict", "copy", "state"),
    "evaluation": ("none", "no_grad", "decorated", "summon", "reduced"),
    "generation": ("none", "summon", "plain", "parts"),
    "prints": ("all", "first"),
    "reading": ("none", "summon", "norms", "gradients", "names", "units"),
    # States.
    "state": (
        *("none", "full", "full_rank0", "full_all", "set_type", "plain", "sharded"),
        "sharded_config",
    ),
    "optimizer_state": ("none", "modern", "full", "sharded", "scatter"),
    "resume": ("none", "same", "fresh"),
    "checksum": ("state", "summon", "none"),
    # A module without parameters, whose result depends on the type of its input.
    "gate": ("no", "yes"),
}

# Of how many programs a feature has another choice than the first one.
SHARES: Mapping[str, float] = {
    "layout": 0.75,
    "arguments": 0.6,
    "config": 0.45,
    "imports": 0.4,
    "device": 0.5,
    "model": 0.5,
    "policy": 0.85,
    "strategy": 0.6,
    "precision": 0.4,
    "orig_params": 0.5,
    "optimizer": 0.8,
    "clip": 0.6,
    "state": 0.7,
    "optimizer_state": 0.7,
    "resume": 0.7,
    "checksum": 0.3,
    "compile": 0.02,
    "attention": 0.15,
    "ignored": 0.1,
    "gate": 0.15,
    "tied": 0.3,
    "offload": 0.12,
    "scaler": 0.15,
    "inputs": 0.5,
    "casts": 0.5,
}
SHARE = 0.22
# The migration blocks on clipping by the largest gradient: a few such programs show it.
BLOCKED_CLIPPING = 0.9


def describe(seed: int) -> Description:
    """The description of the program with a number."""
    choose = random.Random(seed)
    found = {}
    for name, choices in FEATURES.items():
        other = choose.random() < SHARES.get(name, SHARE)
        found[name] = choose.choice(choices[1:]) if other else choices[0]
    if found["clip"] == "infinite" and choose.random() < BLOCKED_CLIPPING:
        found["clip"] = "two"
    if found["scaler"] == "yes" and found["clip"] not in ("none", "measure"):
        found["scaler"] = "unscale"  # else the bound is for gradients that the scaler multiplied
    return consistent(found)


def simplest() -> Description:
    return {name: choices[0] for name, choices in FEATURES.items()}


def consistent(given: Description) -> Description:
    """The description without choices that mean nothing beside the others."""
    found = dict(given)

    def drop(*names: str) -> None:
        for name in names:
            found[name] = FEATURES[name][0]

    if found["model"] == "vectors":
        drop("tied", "generation")
    else:
        drop("inputs")
    if found["precision"] == "none":
        drop("casts", "inputs")
    if found["precision"] == "reduce":
        drop("inputs")  # parameters stay in float32, and nothing casts the inputs
    if found["casts"] in ("no_root", "neither") and found["model"] == "vectors":
        if found["precision"] in ("fp16", "reduce"):
            drop("casts")
        else:
            found["inputs"] = "bfloat16"  # nothing casts the inputs
    if found["policy"] in ("always", "size"):
        drop("attention")  # FSDP1 wraps its inner layer, whose weight it reads without a call
        drop("tied")
    if found["policy"] == "always" and found["reading"] == "units":
        drop("reading")  # FSDP1 also wraps the list of blocks
    if found["optimizer"] == "sgd" and found["optimizer_state"] == "scatter":
        found["optimizer_state"] = "full"
    if found["state"] == "full_rank0" or found["offload"] == "yes":
        found["device"] = "cuda"  # without an accelerator, FSDP1 offloads nothing
    if found["strategy"] == "hybrid":
        found["device"] = "cuda"  # FSDP1 makes the groups from the number of devices of a machine
    if found["compile"] != "none" and found["device"] == "cuda":
        drop("compile")  # devices that are emulated have nothing to compile for
    if found["device"] == "cpu":
        drop("placement")
        if found["init"] in ("sync", "meta_sync"):
            drop("init")
    if found["init"] != "seed" and found["placement"] == "moved":
        drop("placement")
    by_hand = found["policy"] in ("by_hand", "wrap", "wrap_in_constructor")
    if (by_hand or found["policy"] == "none") and found["strategy"] == "hybrid":
        found["strategy"] = "hybrid_mesh"
    if found["reading"] == "gradients":
        found["orig_params"] = "true"
    if found["state"] == "none":
        drop("optimizer_state", "resume")
    if found["init"] == "sync" and found["resume"] != "none":
        drop("ignored")  # the weights of ignored modules differ by rank, and rank 0's are saved
    if found["state"] == "plain" and found["optimizer_state"] == "modern":
        found["optimizer_state"] = "full"
    if found["state"].startswith("sharded") and found["optimizer_state"] in ("full", "scatter"):
        found["optimizer_state"] = "modern"
    if not found["state"].startswith("sharded") and found["optimizer_state"] == "sharded":
        found["optimizer_state"] = "modern"
    if found["frozen"] in ("biases", "embedding"):
        found["orig_params"] = "true"
    if found["frozen"] == "embedding" and found["tied"] == "yes":
        drop("frozen")
    if found["groups"] != "one":
        found["orig_params"] = "true"
    if found["policy"] in ("wrap_in_constructor", "by_hand", "wrap"):
        if found["init"] in ("meta_reset", "meta_function", "meta_sync"):
            drop("init")
        if found["arguments"] in ("partial",):
            drop("arguments")
    if found["policy"] == "wrap_in_constructor":
        drop("ignored", "blocks", "ema", "frozen")
    if by_hand and found["arguments"] == "method":
        drop("arguments")
    if found["init"].startswith("meta"):
        drop("ignored", "attention")
        if found["ema"] == "copy":
            drop("ema")
    if found["precision"] not in ("fp16", "mixed", "none", "params"):
        drop("scaler")
    if found["blocks"] == "dict" and found["mask"] != "no":
        drop("blocks")
    if found["blocks"] == "sequential" and found["mask"] != "no":
        drop("mask")
    if found["mask"] != "no" and found["checkpointing"] != "none" and found["mask"] == "keyword":
        found["mask"] = "positional"
    if found["config"] != "literals" and found["arguments"] == "method":
        drop("arguments")
    return found


def differences(description: Description) -> Description:
    """The choices that are not the first ones."""
    return {name: one for name, one in description.items() if one != FEATURES[name][0]}

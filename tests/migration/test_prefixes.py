"""Programs that remove FSDP1's prefix from names, with the prefix in a variable, a loop or an argument."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

from fsdplint.diagnostics.finding import Safety

MODEL = "import re\nmodel = FSDP(Net())\n"
REMOVALS = {
    "parts of a name": """
        def clean(name):
            return ".".join(part for part in name.split(".") if part != "_fsdp_wrapped_module")


        names = [clean(name) for name, _ in model.named_parameters()]
        WRAPPER = "_fsdp_wrapped_module"
        parts = [p for p in names[0].split(".") if p and p != WRAPPER]
        others = [p for p in names[0].split(".") if p not in ("_fsdp_wrapped_module", "_orig_mod")]
    """,
    "a loop over prefixes": """
        weights = {}
        for name, p in model.named_parameters():
            for wrapper in ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module."):
                name = name.replace(wrapper, "")
            weights[name] = p
    """,
    "a loop over a constant": """
        WRAPPERS = ["_fsdp_wrapped_module.", "_orig_mod."]


        def clean(name):
            for wrapper in WRAPPERS:
                if wrapper in name:
                    name = name.replace(wrapper, "")
            return name


        names = [clean(name) for name, _ in model.named_parameters()]
    """,
    "pairs": """
        RENAMES = (("_fsdp_wrapped_module.", ""), ("_orig_mod.", ""))
        for name, _ in model.named_parameters():
            for old, new in RENAMES:
                name = name.replace(old, new)
            print(name)
    """,
    "the items of a dict": """
        for name, _ in model.named_parameters():
            for old, new in {"._fsdp_wrapped_module.": ".", "_orig_mod.": ""}.items():
                name = name.replace(old, new)
            print(name)
    """,
    "a loop while there is one": """
        WRAPPERS = ("_fsdp_wrapped_module.", "_orig_mod.")


        def clean(name):
            while any(w in name for w in WRAPPERS):
                for w in WRAPPERS:
                    name = name.replace(w, "")
            return name


        names = [clean(name) for name, _ in model.named_parameters()]
    """,
    "a pattern": """
        PATTERN = re.compile(r"_fsdp_wrapped_module\\.|_orig_mod\\.")
        names = [PATTERN.sub("", name) for name, _ in model.named_parameters()]
    """,
    "a pattern that is not compiled": """
        names = [re.sub(r"\\._fsdp_wrapped_module\\.", ".", n) for n, _ in model.named_parameters()]
    """,
    "a constant": """
        PREFIX = "_fsdp_wrapped_module."
        names = [
            n[len(PREFIX) :] if n.startswith(PREFIX) else n for n, _ in model.named_parameters()
        ]
    """,
    "an argument": """
        def strip(name, prefix):
            return name.removeprefix(prefix)


        names = [strip(n, "_fsdp_wrapped_module.") for n, _ in model.named_parameters()]
    """,
    "a default": """
        def strip(name, prefix="_fsdp_wrapped_module."):
            return name.replace(prefix, "")


        names = [strip(n) for n, _ in model.named_parameters()]
    """,
}
SEARCHES = {
    "a loop that tests": """
        for name, _ in model.named_parameters():
            for wrapper in ("_fsdp_wrapped_module.", "_orig_mod."):
                if wrapper in name:
                    print(name)
    """,
    "any prefix": """
        WRAPPERS = ("_fsdp_wrapped_module.", "_orig_mod.")
        names = [n for n, _ in model.named_parameters() if any(w in n for w in WRAPPERS)]
    """,
    "a choice of the parts": """
        names = [n.split(".") for n, _ in model.named_parameters()]
        inner = [p for p in names[0] if p == "_fsdp_wrapped_module"]
        longer = [n for n in names if "_fsdp_wrapped_module" not in n]
    """,
    "a pattern that finds the prefix": """
        PATTERN = re.compile(r"_fsdp_wrapped_module\\.")
        names = [name for name, _ in model.named_parameters() if PATTERN.search(name)]
    """,
    "a pattern for another text": """
        names = [re.sub("_fsdp_wrapped_module", "module", n) for n, _ in model.named_parameters()]
    """,
    "a loop while there is one that does more": """
        WRAPPERS = ("_fsdp_wrapped_module.", "_orig_mod.")
        for name, _ in model.named_parameters():
            while any(w in name for w in WRAPPERS):
                print(name)
                for w in WRAPPERS:
                    name = name.replace(w, "")
    """,
    "one prefix of several": """
        WRAPPERS = ("_fsdp_wrapped_module.", "_orig_mod.")
        names = [n for n, _ in model.named_parameters() if WRAPPERS[0] in n]
    """,
    "a constant that a search reads, too": """
        PREFIX = "_fsdp_wrapped_module."
        names = [n.replace(PREFIX, "") for n, _ in model.named_parameters() if PREFIX in n]
    """,
    "another text in its place": """
        for name, _ in model.named_parameters():
            for old, new in (("_fsdp_wrapped_module", "module"), ("_orig_mod.", "")):
                name = name.replace(old, new)
    """,
    "a text in its place that is not known": """
        new = os.environ["NEW"]
        for name, _ in model.named_parameters():
            for wrapper in ("_fsdp_wrapped_module.", "_orig_mod."):
                name = name.replace(wrapper, new)
    """,
    "an item of a dict": """
        settings = {}
        settings["prefix"] = "_fsdp_wrapped_module."
        names = [n for n, _ in model.named_parameters() if settings["prefix"] in n]
    """,
    "letters of the prefix": """
        PREFIX = "_fsdp_wrapped_module."
        for letter in PREFIX:
            names = [n.replace(letter, "") for n, _ in model.named_parameters()]
    """,
}


@pytest.mark.parametrize("body", list(REMOVALS.values()), ids=list(REMOVALS))
def test_a_removal_of_the_prefix_stays(body: str, tmp_path: Path) -> None:
    text = textwrap.dedent(body).strip()
    assert migrated(tmp_path, MODEL + text + "\n").strip().endswith(text)


@pytest.mark.parametrize("body", list(SEARCHES.values()), ids=list(SEARCHES))
def test_a_search_for_the_prefix_blocks(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, MODEL + textwrap.dedent(body))
    assert any("searches names" in blocker.reason for blocker in found.blockers)


COMPARED = """
use_fsdp = True
if use_fsdp:
    head = "_fsdp_wrapped_module.head.weight"
else:
    head = "head.weight"
decay = [p for name, p in model.named_parameters() if name != head]
blocks = [n for n, _ in model.named_modules() if n.startswith("_fsdp_wrapped_module.blocks.")]
found = any("_fsdp_wrapped_module.head" in name for name, _ in model.named_parameters())
"""


def test_names_are_compared_without_the_prefix(tmp_path: Path) -> None:
    text = migrated(tmp_path, MODEL + COMPARED)
    assert "_fsdp_wrapped_module" not in text
    assert text.count('"head.weight"') == 2
    assert 'n.startswith("blocks.")' in text
    assert 'any("head" in name' in text
    found, _ = plan(tmp_path, MODEL + COMPARED)
    assert not found.blockers
    assert found.safety is Safety.UNSAFE


@pytest.mark.parametrize(
    "line",
    [
        'print([n for n, _ in model.named_modules() if n.startswith("_fsdp_wrapped_module.")])',
        'print(dict(model.named_parameters())["_fsdp_wrapped_module.head.weight"])',
        'print([n for n, _ in model.named_parameters() if n == "_fsdp_wrapped_module"])',
        'print([n for n in torch.load("w.pt") if n != "_fsdp_wrapped_module.head.weight"])',
    ],
    ids=["the prefix alone", "a key", "the name of the prefix", "names of a file"],
)
def test_other_uses_of_the_prefix_block(line: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, MODEL + line + "\n")
    assert any("searches names" in blocker.reason for blocker in found.blockers)

"""`type(module).__name__ == "FullyShardedDataParallel"` becomes `isinstance(module, FSDP)`."""

from __future__ import annotations

from fsdplint.migration.analysis.class_names import Question, class_questions
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.names import FSDP, PREFIX
from fsdplint.migration.text import atom


def ask_for_class(inlining: Inlining) -> None:
    """Ask for FSDP1's class itself where a file compares its name."""
    if _may_be_other_class(inlining):
        return
    for node, question in class_questions(inlining.source):
        name = inlining.migration.need(inlining.source, PREFIX, FSDP, node)
        text = _text(inlining, question, name)
        is_part = bool(question.others) and not node.lpar
        inlining.put(node, atom(text) if is_part else text)


def _may_be_other_class(inlining: Inlining) -> bool:
    """Whether the program also uses the library whose class has the same name."""
    files = full_program(inlining.migration.program).sources.values()
    return any("fairscale" in source.text for source in files)


def _text(inlining: Inlining, question: Question, name: str) -> str:
    given = inlining.text(question.module)
    asked = f"isinstance({given}, {name})"
    if question.negated:
        asked = f"not {asked}"
    if not question.others:
        return asked
    others = ", ".join(inlining.text(one) for one in question.others)
    comma = "," if len(question.others) == 1 else ""
    word, join = ("not in", "and") if question.negated else ("in", "or")
    return f"{inlining.text(question.name)} {word} ({others}{comma}) {join} {asked}"

"""What a refactoring hides from the interpreter: (refactoring, program) and the cause.

Each is a miss that `test_metamorphic.py` expects; one that is mended fails there until it is removed here.
"""

from __future__ import annotations

CAUSES: dict[str, list[tuple[str, str]]] = {
    "a constant that is an attribute of a settings object is not exact": [
        ("arguments_in_dataclass", "FSDP302/optimizer_from_file"),
        ("arguments_in_dataclass", "FSDP303/last_rank_wins"),
        ("arguments_in_dataclass", "FSDP222/wrapped_by_size"),
        ("arguments_in_dataclass", "FSDP303/unguarded_save"),
        ("settings_dataclass", "FSDP601/root_with_true"),
        ("settings_dataclass", "FSDP511/own_dataset"),
        ("settings_dataclass", "FSDP508/nccl_only"),
    ],
    "a test of the name of a parameter is not followed into a function": [
        ("test_in_function", "FSDP126/biases_in_loop"),
    ],
}
MISSES = {miss: cause for cause, misses in CAUSES.items() for miss in misses}

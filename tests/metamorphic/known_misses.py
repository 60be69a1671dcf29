"""What a refactoring hides from the interpreter: (refactoring, program) and the cause.

Each is a miss that `test_metamorphic.py` expects; one that is mended fails there until it is removed here.
"""

from __future__ import annotations

CAUSES: dict[str, list[tuple[str, str]]] = {
    "operator.methodcaller is not executed": [
        ("method_caller", "FSDP205/with_block"),
        ("method_caller", "FSDP101/loss_in_script"),
        ("method_caller", "FSDP407/scaler_in_loop"),
        ("method_caller", "FSDP301/under_rank_guard"),
        ("method_caller", "FSDP105/blocks_only"),
    ],
    "an object of a NamedTuple class is unknown": [
        ("parts_as_named_tuple", "FSDP124/shard_named_first"),
        ("parts_as_named_tuple", "FSDP116/load_without_assign"),
        ("parts_as_named_tuple", "FSDP114/linear_layers_in_loop"),
    ],
    "a staticmethod of an imported function is unknown": [
        ("class_of_names", "FSDP103/root_sharded_later"),
        ("class_of_names", "FSDP206/called_on_model"),
        ("class_of_names", "FSDP304/whole_module"),
        ("class_of_names", "FSDP206/written"),
        ("class_of_names", "FSDP308/orthogonal_in_trainer"),
        ("class_of_names", "FSDP209/disabled_scaler"),
    ],
    "an element of a list that is filled by index is lost": [
        ("list_with_index", "FSDP308/seed_per_rank"),
        ("list_with_index", "FSDP113/head_by_setattr"),
        ("list_with_index", "FSDP301/loaded_again"),
    ],
    "a constant that is an attribute of a settings object is not exact": [
        ("arguments_in_dataclass", "FSDP303/last_rank_wins"),
        ("arguments_in_dataclass", "FSDP222/wrapped_by_size"),
        ("settings_dataclass", "FSDP601/root_with_true"),
    ],
    "the rule reads the text of a constant argument": [
        ("strings_in_enum", "FSDP506/device_index"),
    ],
}
MISSES = {miss: cause for cause, misses in CAUSES.items() for miss in misses}

# Refactorings that hide nearly every finding: no sample is taken of their bad programs.
NOT_FOLLOWED = {"class_of_names"}

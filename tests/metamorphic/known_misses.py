"""What a refactoring hides from the interpreter: (refactoring, program) and the cause.

Each is a miss that `test_metamorphic.py` expects; one that is mended fails there until it is removed here.
"""

from __future__ import annotations

CAUSES: dict[str, list[tuple[str, str]]] = {
    "what a context undoes is not looked for where a stack of contexts ends": [
        ("exit_stack", "FSDP323/empty_exit"),
    ],
    "a method that a text names may keep the average in a checkpoint": [
        ("method_by_getattr", "FSDP326/trainer"),
    ],
    "FSDP145 knows modules in a loop by their names, and not as elements of a list": [
        ("list_with_index", "FSDP145/plain_module_in_list"),
    ],
    "the first number that a generator yields is not taken for that of its range": [
        ("loop_over_generator", "FSDP324/epoch_not_restored"),
    ],
    "a context that is not known may cast what a layer gets": [
        ("unknown_context", "FSDP711/inputs_not_cast"),
    ],
    "a choice of Transformers' FSDP that a setting names may be another one": [
        ("argparse_defaults", "FSDP222/fsdp_config_lines"),
        ("arguments_in_dataclass", "FSDP222/fsdp_config_lines"),
        ("environment_defaults", "FSDP222/fsdp_config_lines"),
        ("settings_dataclass", "FSDP222/fsdp_config_lines"),
    ],
    "code that is not known may have changed the buffers of a model": [
        ("all_seen_elsewhere", "FSDP151/running_mean"),
        ("model_seen_elsewhere", "FSDP151/running_mean"),
    ],
    "a negated test is not seen to hold in every Nth turn": [
        ("negated_test", "FSDP433/every_fourth_turn"),
    ],
    "code that is not known may train the other parameters": [
        ("unknown_context", "FSDP709/hidden_layers_only"),
    ],
    "code that is not known may make gradients": [
        ("unknown_batch", "FSDP432/end_of_turn"),
        ("unknown_context", "FSDP432/end_of_turn"),
    ],
    "the user of a command line may ask for no dropout, or for one worker": [
        ("argparse_defaults", "FSDP442/two_evaluations"),
        ("argparse_defaults", "FSDP522/split_by_rank"),
    ],
    "an iterator that is not known may ask for the worker": [
        ("unknown_iterator", "FSDP522/split_by_rank"),
        ("unknown_iterator", "FSDP522/with_seeded_samples"),
    ],
    "an iterator that is not known may number the turns in another way": [
        ("unknown_iterator", "FSDP403/branches_of_a_context"),
    ],
    "a call that code out of sight makes may wait for the collective": [
        ("method_caller", "FSDP524/sum_of_ones"),
        ("partial_call", "FSDP524/sum_of_ones"),
    ],
    "the order of a set is not followed through another iterator": [
        ("enumerated_loop", "FSDP529/reduced_metrics"),
        ("loop_by_next", "FSDP529/reduced_metrics"),
        ("loop_over_iterator_class", "FSDP529/reduced_metrics"),
        ("parts_by_default_factory", "FSDP529/reduced_metrics"),
    ],
    "a strategy of Lightning that a setting names may be another one": [
        ("argparse_defaults", "FSDP223/strategy_by_name"),
        ("arguments_in_dataclass", "FSDP223/strategy_by_name"),
        ("environment_defaults", "FSDP223/strategy_by_name"),
        ("settings_dataclass", "FSDP223/strategy_by_name"),
    ],
    "a comprehension may wrap several models": [
        ("through_comprehension", "FSDP115/fsdp1_model"),
        ("through_comprehension", "FSDP115/fsdp1_with_mesh"),
        ("through_comprehension", "FSDP115/no_mesh"),
        ("through_comprehension", "FSDP602/frozen_teacher"),
    ],
    "an argument of the command line whose name is a setting is not known": [
        ("environment_defaults", "FSDP506/device_index"),
        ("environment_defaults", "FSDP506/rank_guard"),
    ],
    "the device in a variable of the environment may not be meta": [
        ("environment_defaults", "FSDP134/initialized_on_meta"),
    ],
    "the device in a variable of the environment may have no index": [
        ("environment_defaults", "FSDP503/index_in_script"),
    ],
    "the user of a command line may name a device that is no GPU": [
        ("argparse_defaults", "FSDP135/moved_after_wrapping"),
    ],
    "the device in a variable of the environment may not be a GPU": [
        ("environment_defaults", "FSDP135/empty_on_the_gpu"),
    ],
    "a model that a generator passes on is another one in each phase": [
        ("generator_of_phases", "FSDP127/original_parameters"),
    ],
    "a method that `operator.methodcaller` calls may write to a buffer": [
        ("method_caller", "FSDP704/loaded_checkpoint"),
        ("method_caller", "FSDP704/rotary_frequencies"),
    ],
    "a counter that `enumerate` pairs with a number of its own is not followed as a counter": [
        ("enumerated_loop", "FSDP403/branches_of_a_context"),
        ("enumerated_loop", "FSDP403/inverted_no_sync"),
    ],
    "a `case` that leaves a loop may leave it in each run": [
        ("test_as_match", "FSDP512/ends_early_to_debug"),
    ],
    "a call that restores an entry is found by its form": [
        ("bound_method", "FSDP319/entry_never_saved"),
        ("dict_of_functions", "FSDP319/entry_never_saved"),
        ("method_caller", "FSDP319/entry_never_saved"),
        ("partial_call", "FSDP319/entry_never_saved"),
        ("star_arguments", "FSDP319/entry_never_saved"),
    ],
    "a method that `methodcaller` calls may be another one": [
        ("method_caller", "FSDP319/own_state_loaded"),
    ],
    "code that gets the model may add up its gradients": [
        ("all_seen_elsewhere", "FSDP519/part_of_each_sequence"),
        ("all_seen_elsewhere", "FSDP519/slice_of_each_sequence"),
        ("model_seen_elsewhere", "FSDP519/part_of_each_sequence"),
        ("model_seen_elsewhere", "FSDP519/slice_of_each_sequence"),
        ("unknown_context", "FSDP519/part_of_each_sequence"),
        ("unknown_context", "FSDP519/slice_of_each_sequence"),
    ],
    "a function out of sight may give the ranks of a group the same batch": [
        ("unknown_batch", "FSDP519/part_of_the_mesh"),
    ],
    "unknown code may get what a generator does that is run by `send`": [
        ("generator_with_send", "FSDP319/optimizer_begins_again"),
        ("generator_with_send", "FSDP319/entry_never_saved"),
        ("generator_with_send", "FSDP319/own_state_loaded"),
        ("generator_with_send", "FSDP320/no_barrier"),
        ("generator_with_send", "FSDP421/no_update"),
        ("generator_with_send", "FSDP421/unscaled_before_clipping"),
    ],
}
MISSES = {miss: cause for cause, misses in CAUSES.items() for miss in misses}

"""The recorder: watches a program on one rank and records what happens as events.

In the order in which to read them:

    recording            the state of one run, and `current()`, the handle to it
    recorder             writes events, which are classes of `fsdplint.trace`, and other lines
    sites, values        the user's line of an event; torch's values as constants, names and text
    objects, identity    the names of modules, optimizers and state dicts; who owns a parameter
    patching             puts a watcher around a function or method of torch
    patches/             the watchers, by area; they write most of the events

What is measured at each step or at the end:

    measures, peak_memory, digests    losses, norms, collectives and memory of a step
    layouts                           which rank holds which part of each parameter
    final_state                       gathers the parameters and optimizer states at the end
    missed_parameters, replicas       parameters without an optimizer; copies that must be equal

What watchers store between calls:

    running_calls, output_views, untouched_buffers, uninitialized_parameters, parameter_marks,
    summed_losses, loader_pass, launcher_arguments, outside_files

`refusals` records errors of torch, `full_disk` detects errors of a full disk, `heartbeat` shows the
step while the program runs, and `data_parallel_reference` replaces sharding by data parallelism.
"""

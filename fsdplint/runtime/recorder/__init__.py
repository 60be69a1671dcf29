"""The recorder: it watches a program on one rank and writes what happens as events.

In the order in which to read them:

    recording            all that is known of one run, and `current()`, the one handle to it
    recorder             writes the events, as classes of `fsdplint.trace`, and other lines
    sites, values        the user's line of an event; torch's values as constants, names and text
    objects, identity    the names of modules, optimizers and state dicts; who owns a parameter
    patching             puts a watcher around a function or method of torch's
    patches/             the watchers, by area; they write most of the events

What a run is asked at each step, or at its end:

    measures, peak_memory, digests    losses, norms, collectives and memory of a step
    layouts                           which rank holds which part of each parameter
    final_state                       gathers the parameters and optimizer states at the end
    missed_parameters, replicas       parameters without an optimizer; copies that are to be equal

What watchers remember from one call for another:

    running_calls, output_views, untouched_buffers, parameter_marks, summed_losses, loader_pass,
    launcher_arguments, outside_files

The rest: `refusals` reads torch's errors, `full_disk` those of a full disk, `heartbeat` shows the
step while the program runs, and `data_parallel_reference` puts data parallelism in place of the
sharding.
"""

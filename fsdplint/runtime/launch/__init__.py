"""Launches a program under the recorder, and reads its records as one trace.

In the order in which to read them:

    runner           runs the program on one rank: `python -m fsdplint.runtime`
    line_coverage    marks lines of the program, to see whether they are reached
    launcher         starts all ranks under torchrun, monitors them and ends those that hang
    script           refuses programs that Python cannot read
    workplace, copies          the folder of a command; a copy of the user's project for each run
    machines, processes        several machines; the processes of a run
    progress, endings, failures    progress for the user; how each rank ended, and why
    records          reads the records of the ranks
    merge            merges the records of all ranks into one trace, with the help of:
        event_schema             how the fields of each class of events are recorded
        alignment, code_order    which lines of the ranks are one event, and their order
        source_loops             the loops of a file
        participation            which ranks took part in an event, and which skipped it
        owned_modules            the largest modules whose parameters an event is about
"""

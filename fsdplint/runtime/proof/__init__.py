"""The proof: a program is run before and after its fixes, and the runs are compared.

In the order in which to read them:

    run_once         `fsdplint run`: runs a program once, and has the rules read its trace
    prove            `fsdplint prove`: runs a program before and after its fixes
    program_pair     the two programs, each in its own copy of the project
    runs             the runs of a proof: what they show, and which further runs are needed
    resuming         goes on from the checkpoints of the runs
    checks           one comparison: whether it holds, and within which tolerance
    compare          losses, norms, clipping, optimizers and collectives of the two runs
    compare_tensors, compare_layout, compare_costs    parameters; who holds what; time and memory
    checkpoints      what the two programs wrote to disk
    evidence         what happened at the line of a fix, and which comparisons are about it
    verdicts         the verdict on each fix
    simulated_runs, simulation_report    the same of one simulated rank; what was counted
    reports/         a proof as text, Markdown, JSON and a page with plots
"""

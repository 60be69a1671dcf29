"""The proof: runs a program before and after its fixes, and compares the runs.

In the order in which to read them:

    run_once         `fsdplint run`: runs a program once, and checks its trace
    prove            `fsdplint prove`: runs a program before and after its fixes
    program_pair     the two programs, each in its own copy of the project
    runs             the runs of a proof: what they show, and which further runs are needed
    resuming         resumes the programs from their checkpoints
    checks           one comparison: whether it holds, and within which tolerance
    compare          losses, norms, clipping, optimizers and collectives of the two runs
    compare_tensors, compare_layout, compare_costs    tensors; placement on ranks; time and memory
    checkpoints      the files that the two programs wrote
    evidence         the events at the line of a fix, and the comparisons that concern them
    verdicts         the verdict on each fix
    simulated_runs, simulation_report    runs of one simulated rank, and their report
    reports/         a proof as text, Markdown, JSON and a page with plots
"""

"""The planner of the FSDP1 to FSDP2 migration, which the rules FSDP2xx share.

A plan covers the files of a program that belong together (`analysis.components`), and rewrites every
use of FSDP1 in them or none. `passes.PASSES` is the order in which a plan is made:

    constructor     the class, its arguments, configs and enums, wrapping policies
    training        clipping, `no_sync`, `summon_full_params`, attributes of the wrapper, gradients
    state_dicts     state dicts of models and optimizers
    analysis        questions about the syntax of the files: scopes, class hierarchies, narrowing
    checks          what breaks although every use has a rewrite
    frameworks      models that Accelerate and others wrap
    report          the report of `fsdplint migrate`

Code without a faithful rewrite raises `Blocked`, which becomes a blocker of the plan. Every reference to
FSDP1 that no pass has accounted for becomes a blocker too. `symbols` is the table of all names of FSDP1
and what they become.
"""

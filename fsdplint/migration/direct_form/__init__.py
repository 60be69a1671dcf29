"""The direct form of a program: FSDP1 is used by its own names, with its arguments in the call.

`bind = functools.partial(FSDP, ...)` and `bind(model)`, `getattr(model, "no_sync")()`, arguments in a
tuple and contexts in a variable hide a use of FSDP1 from the passes of a migration. A migration that is
blocked is planned once more for the direct form of its files (`planner.make_plan`):

    fabric_strategies  strategies of Fabric
    meaning         the expression that a variable or an element of a display stands for
    relevance       whether an expression has to do with FSDP1
    assignments     several variables in one assignment, and `:=`
    calls           calls through partials, lambdas, method callers and helpers; spread arguments
    chosen_calls    calls of FSDP1 or of something else
    refused_calls   calls that raise TypeError, as they are meant
    class_calls     methods of a model that are called on FSDP1's class
    double_wraps    modules that are wrapped twice
    class_names     comparisons of the name of FSDP1's class
    api_questions   tests of which API FSDP1 has
    forwarding      functions that only hand their arguments on to FSDP1
    forwarding_policies  functions that only call a policy with their own arguments
    argument_dicts  dicts that calls of FSDP1 spread, with all of their uses
    imported_dicts  the files that import such a dict
    items           a variable for each item of such a dict
    parameters      a parameter for each argument that a function hands on to FSDP1
    returned_dicts  functions that return such a dict
    returned_partials  functions that return a partial of FSDP1's class
    item_reads      the items of a dict that is made in any other way
    spread_keys     the keys of such a dict
    dtype_dicts     dicts of dtypes under keys of settings
    building        expressions that only build objects
    subclasses      classes that derive from FSDP1's
    defaults        what FSDP1 takes where an argument is left out
    contexts        contexts in variables and on an `ExitStack`
    chosen_contexts  contexts that a test chooses
    type_blocks     a type of states that is set and then set back
    attributes      attributes of classes and of settings objects
    constants       flags and strings that settings hold
    names           imports through other files of the project
    rewriting       all of them for the files of a program
    moved_back      the plan for the direct form as a plan for the program

A change to the direct form keeps the meaning of the program by itself, so that what the passes then
decide holds for the program as it is. Only a call that raises TypeError gets another meaning, and a
note says so.
"""

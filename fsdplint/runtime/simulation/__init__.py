"""One rank of a program at a number of ranks that is not here.

The program runs in one process with torch's fake tensors, which have shapes and types but no
values, and its fake process group, whose collectives send nothing. So a model of any size costs no
memory, and what this rank would hold and send can be added up: `accounting` does that, also in real
runs.
`ranks` stands in for the other ranks, `values` for what the program wants to know of values, `data`
keeps samplers and loaders real, `conversion` converts modules, `measure` writes down what was
counted; `runs` and `report` are the command's side.

What depends on values (a branch on a loss, a router of experts) takes one fixed way here; where a
shape depends on them, the program cannot go on and the line is named.
"""

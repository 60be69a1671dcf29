"""Simulates one rank of a program for any number of ranks.

The program runs in one process with torch's fake tensors, which have shapes and types but no
values, and with its fake process group, whose collectives send nothing. So a model of any size
costs no memory, and `accounting` adds up what this rank would hold and send, also in real runs.
`ranks` replaces the other ranks, and `values` the values that the program reads. `data` keeps
samplers and loaders real, `conversion` converts modules, and `measure` records the counts.

Code that depends on values (a branch on a loss, a router of experts) takes one fixed way. If a
shape depends on values, the program stops, and the report names the line.
"""

"""The output formats: one module for each, with the name of the format.

A module has a function `write`, and two constants:

* `FOR_PEOPLE`: whether the output is for people, not programs;
* `HAS_STATISTICS`: whether `--statistics` supports this format.
"""

"""The output formats: a module each, named as the format.

A module has a function `write`, and two constants:

* `FOR_PEOPLE`: whether people read it, rather than programs;
* `HAS_STATISTICS`: whether `--statistics` has this format.
"""

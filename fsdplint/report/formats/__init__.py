"""The output formats: a module each, with a function `write`."""

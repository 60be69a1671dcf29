"""Stands in for pynvml."""

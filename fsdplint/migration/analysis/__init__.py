"""Analyses of a program that the migration needs and the interpreter does not give."""

"""The recorder: it runs a program on one rank and writes what happens as events."""

"""Settings from pyproject.toml and the command line, and the torch that a program targets."""

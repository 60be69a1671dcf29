"""Settings: what pyproject.toml and the command line say, and the torch that a program targets."""

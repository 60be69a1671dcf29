"""The version of fsdplint."""

__version__ = "0.1.0"

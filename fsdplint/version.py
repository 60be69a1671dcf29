"""The version of fsdplint."""

__version__ = "0.2.0"

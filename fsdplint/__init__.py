"""fsdplint: a linter and auto-fixer for PyTorch FSDP training programs that proves its fixes."""

__version__ = "0.1.0"

"""`python -m fsdplint`."""

from __future__ import annotations

from fsdplint.cli import main

if __name__ == "__main__":
    main(prog_name="python -m fsdplint")

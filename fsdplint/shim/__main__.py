"""`python -m fsdplint.shim`: the same as `python -m fsdplint.runtime`."""

from __future__ import annotations

import sys

from fsdplint.runtime.launch.runner import main

if __name__ == "__main__":
    main(sys.argv[1:])

"""`python -m fsdplint.runtime`: run one rank of a program under the recorder."""

from __future__ import annotations

import sys

from fsdplint.runtime.launch.runner import main

if __name__ == "__main__":
    main(sys.argv[1:])

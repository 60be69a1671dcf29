"""The former name of `fsdplint.runtime`, kept for `python -m fsdplint.shim`."""

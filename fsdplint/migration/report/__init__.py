"""The report of `fsdplint migrate`."""

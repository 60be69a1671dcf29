"""Compares what two programs do with the FSDP contract, by their traces.

A trace gives a plan: the facts of one run (units, precision, optimizers, states, files and so on),
in the words of FSDP2 whichever FSDP the program uses. Two plans are compared fact by fact.
"""

from __future__ import annotations

import fsdplint.source.quick_libcst  # noqa: F401 (before anything imports libcst)

"""The runtime producer of traces and the proof.

The recorder (`python -m fsdplint.runtime train.py`) runs a training program under any launcher with
torch's public entry points patched, and writes down the events of `fsdplint.trace` and a few
measures, one file a rank. `merge` makes one trace of them; `prove` runs a program before and after
its fixes and compares.

Nothing here is imported by the lint path, and importing this package does not import torch.
"""

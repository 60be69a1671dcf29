"""The backends of process groups that torch and its extensions have."""

BACKENDS = {
    "gloo", "nccl", "mpi", "ucc", "xccl", "hccl", "undefined", "fake", "cncl", "eccl", "mccl",
}  # fmt: skip
# Backends without support for tensors on the CPU, and the device of each.
ONLY_ACCELERATORS = {"nccl": "cuda", "xccl": "xpu", "hccl": "npu"}

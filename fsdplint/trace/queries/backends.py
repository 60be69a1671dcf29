"""The backends of process groups that torch and its extensions have."""

BACKENDS = {
    "gloo", "nccl", "mpi", "ucc", "xccl", "hccl", "undefined", "fake", "cncl", "eccl", "mccl",
}  # fmt: skip

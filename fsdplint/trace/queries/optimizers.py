"""The optimizers of torch by how they update their parameters."""

# Those that are able to update sharded and plain tensors one by one, with `foreach=False`. Without
# this argument and without `fused`, they take functions for lists of tensors where all parameters
# are tensors or DTensors on an accelerator (`torch.optim.optimizer._default_to_fused_or_foreach`).
STEPPING_SINGLY = frozenset(
    {
        "ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop",
        "Rprop", "SGD",
    }
)  # fmt: skip

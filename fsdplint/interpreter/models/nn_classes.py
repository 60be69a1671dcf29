"""The classes of torch.nn that register parameters or have submodules."""

from __future__ import annotations

import re

# torch.nn classes that register parameters; all others have none.
PARAMETERIZED = re.compile(
    r"[Ll]inear$|Conv(Transpose)?\dd$|(Batch|Group|Instance|Layer|RMS)Norm(\dd)?$|^Embedding|^(RNN|LSTM|GRU)"
    r"|^(MultiheadAttention|PReLU|Transformer|TransformerEncoder|TransformerDecoder)$|^Parameter"
)
# The first arguments of classes, which modules have as attributes.
SIZES = {
    "Linear": ("in_features", "out_features"),
    "Embedding": ("num_embeddings", "embedding_dim"),
    "Conv1d": ("in_channels", "out_channels"),
    "Conv2d": ("in_channels", "out_channels"),
    "Conv3d": ("in_channels", "out_channels"),
    "MultiheadAttention": ("embed_dim", "num_heads"),
}
CONTAINERS = {"Sequential", "ModuleList", "ModuleDict"}
# Classes with submodules that depend on their arguments.
COMPOSITE = {"Transformer", "TransformerEncoder", "TransformerDecoder"}
# Classes whose submodules are always the same, by name.
PARTS = {
    "MultiheadAttention": {"out_proj": "NonDynamicallyQuantizableLinear"},
    "TransformerEncoderLayer": {
        "self_attn": "MultiheadAttention", "linear1": "Linear", "dropout": "Dropout",
        "linear2": "Linear", "norm1": "LayerNorm", "norm2": "LayerNorm", "dropout1": "Dropout",
        "dropout2": "Dropout",
    },
    "TransformerDecoderLayer": {
        "self_attn": "MultiheadAttention", "multihead_attn": "MultiheadAttention",
        "linear1": "Linear", "dropout": "Dropout", "linear2": "Linear", "norm1": "LayerNorm",
        "norm2": "LayerNorm", "norm3": "LayerNorm", "dropout1": "Dropout", "dropout2": "Dropout",
        "dropout3": "Dropout",
    },
}  # fmt: skip
# Classes of torch.nn that derive from other classes of torch.nn.
SUBCLASSES = {"torch.nn.NonDynamicallyQuantizableLinear": "torch.nn.Linear"}

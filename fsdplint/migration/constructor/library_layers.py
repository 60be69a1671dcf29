"""What is known of the models of Transformers, beyond their names.

Each class was run with a small model on torch 2.13 and transformers 5.23.0, sharded by layers, with a
batch that is padded: a layer gets floating point tensors of the type of the hidden states only, and
the loss and all gradients are the same to the bit whether the layers cast their inputs or not.
"""

from __future__ import annotations

# Layers whose floating point inputs all have the type of the hidden states.
_LAYERS = frozenset(
    {
        "BertLayer",
        "BloomBlock",
        "FalconDecoderLayer",
        "GPT2Block",
        "GPTJBlock",
        "GPTNeoXLayer",
        "Gemma2DecoderLayer",
        "GemmaDecoderLayer",
        "LlamaDecoderLayer",
        "MistralDecoderLayer",
        "MixtralDecoderLayer",
        "OPTDecoderLayer",
        "PhiDecoderLayer",
        "Qwen2DecoderLayer",
        "Qwen3DecoderLayer",
        "RobertaLayer",
        "T5Block",
    }
)
# Models without floating point buffers.
_WITHOUT_BUFFERS = frozenset(
    {
        "BertForMaskedLM",
        "BloomForCausalLM",
        "GPT2LMHeadModel",
        "OPTForCausalLM",
        "RobertaForMaskedLM",
        "T5ForConditionalGeneration",
    }
)


def gets_hidden_type_only(name: str) -> bool:
    """Whether a layer gets floating point tensors of the type of the hidden states only.

    name: its canonical dotted name.
    """
    return _is_in(name, _LAYERS)


def lacks_buffers(name: str) -> bool:
    """Whether a model has no floating point buffers.

    name: its canonical dotted name.
    """
    return _is_in(name, _WITHOUT_BUFFERS)


def _is_in(name: str, classes: frozenset[str]) -> bool:
    return name.startswith("transformers.") and name.rpartition(".")[2] in classes

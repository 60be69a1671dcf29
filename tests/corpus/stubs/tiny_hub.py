"""Makes `from_pretrained` of transformers give tiny models with random weights; nothing is loaded.

Imported by a line that `runnable.py` puts into a program.
"""

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, T5Config

VOCABULARY = 96


class Tokenizer:
    """A token for each character."""

    model_max_length = 256
    vocab_size = VOCABULARY - 1
    pad_token, eos_token, unk_token, bos_token = "<pad>", "</s>", "<unk>", "<s>"
    pad_token_id, eos_token_id, unk_token_id, bos_token_id = 0, 1, 2, 3
    padding_side = "right"

    def __len__(self):
        return VOCABULARY

    def add_special_tokens(self, tokens):
        return 0

    def save_pretrained(self, folder):
        return ()

    def __call__(
        self,
        text,
        max_length=None,
        truncation=False,
        padding=False,
        return_tensors=None,
        add_special_tokens=True,
    ):
        texts = [text] if isinstance(text, str) else list(text)
        most = max_length or self.model_max_length
        rows = [[4 + ord(c) % (VOCABULARY - 4) for c in one] + [1] for one in texts]
        rows = [row[:most] if truncation else row for row in rows]
        width = most if padding == "max_length" else max(len(row) for row in rows)
        masks = [[1] * len(row) for row in rows]
        if padding:
            masks = [mask + [0] * (width - len(mask)) for mask in masks]
            rows = [row + [0] * (width - len(row)) for row in rows]
        if return_tensors:
            rows, masks = torch.tensor(rows), torch.tensor(masks)
        elif isinstance(text, str):
            rows, masks = rows[0], masks[0]
        return _Encoding(input_ids=rows, attention_mask=masks)

    batch_encode_plus = __call__


class _Encoding(dict):
    __getattr__ = dict.__getitem__


def _llama_config(**more):
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        **more,
    )


def _llama(name, dtype=None, torch_dtype=None, config=None, device_map=None, **more):
    torch.manual_seed(0)
    if config is None:
        config = _llama_config()
    made = getattr(transformers, type(config).__name__.replace("Config", "ForCausalLM"))(config)
    if device_map is not None:
        made = made.to(device_map)
    return made.to(dtype or torch_dtype or torch.float32)


def _config(name, **more):
    if "mistral" in str(name):
        shape = _llama_config().to_dict()
        return MistralConfig(
            **{
                key: shape[key]
                for key in (
                    "vocab_size",
                    "hidden_size",
                    "intermediate_size",
                    "num_hidden_layers",
                    "num_attention_heads",
                    "num_key_value_heads",
                )
            }
        )
    return _llama_config()


def _t5(name, **more):
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


def _tokenizer(name, **more):
    return Tokenizer()


transformers.AutoModelForCausalLM.from_pretrained = staticmethod(_llama)
transformers.AutoConfig.from_pretrained = staticmethod(_config)
transformers.AutoTokenizer.from_pretrained = staticmethod(_tokenizer)
transformers.T5Tokenizer.from_pretrained = staticmethod(_tokenizer)
transformers.T5ForConditionalGeneration.from_pretrained = staticmethod(_t5)
__all__ = ["LlamaForCausalLM", "Tokenizer"]

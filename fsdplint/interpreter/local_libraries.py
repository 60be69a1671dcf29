"""Libraries whose functions and objects work within one process.

They do not communicate, so that data of a rank stay its own in their hands. What they compute of
such data is its own as well; what only holds the data, such as a deque, has the same length on all
ranks.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Of the standard library: what holds values, and what computes.
_CONTAINERS = (
    "builtins", "collections", "copy", "csv", "dataclasses", "functools", "heapq", "io",
    "itertools",
)  # fmt: skip
_STANDARD = (
    "ast", "base64", "bisect", "decimal", "difflib", "fractions", "hashlib", "html", "json", "math",
    "numbers", "operator", "re", "statistics", "string", "struct", "textwrap", "unicodedata",
    r"urllib\.parse", "zlib",
)  # fmt: skip
# Arrays, tables, images, sound, texts and their scores.
_OTHERS = (
    "albumentations", "cv2", "decord", "editdistance", "einops", "ftfy", "imageio", "jiwer",
    "kornia", "langdetect", "latex2sympy2", "Levenshtein", "librosa", "math_verify", "nltk",
    "numexpr", "numpy", "opt_einsum", "orjson", "pandas", "PIL", "pyarrow", "pycocotools", "regex",
    "rouge_score", "sacrebleu", "scipy", "sentencepiece", "skimage", r"sklearn(?!\.externals)",
    "soundfile", "sympy", "tiktoken", "tokenizers", "torchaudio", "xxhash", "yaml",
    r"diffusers(\.schedulers(\.\w+)?)?(?=\.\w+Scheduler\b)",
    r"torchvision\.(io|ops|transforms|utils)",
    r"transformers\.(image_utils|tokenization_utils\w*)",
    r"transformers\.\w*(FeatureExtractor|Processor|Tokenizer|TokenizerFast)",
)  # fmt: skip
_COMPUTING = re.compile(rf"({'|'.join((*_STANDARD, *_OTHERS))})\..*")
_HOLDING = re.compile(rf"({'|'.join(_CONTAINERS)})\..*")


@lru_cache(maxsize=4096)
def works_within_process(name: str) -> bool:
    """Whether a function of a library, or a method of what it returned, never communicates."""
    return computes_within_process(name) or bool(_HOLDING.fullmatch(name))


@lru_cache(maxsize=4096)
def computes_within_process(name: str) -> bool:
    """Whether such a function or method returns what it computes of its arguments."""
    return bool(_COMPUTING.fullmatch(name))

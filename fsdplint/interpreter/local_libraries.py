"""Libraries whose functions and objects work within one process.

They compute on what they get and do not communicate, so that data of a rank stay its own in their
hands, and results of such data are its own as well.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Of the standard library.
_STANDARD = (
    "ast", "base64", "bisect", "builtins", "collections", "copy", "csv", "dataclasses", "decimal",
    "difflib", "fractions", "functools", "hashlib", "heapq", "html", "io", "itertools", "json",
    "math", "numbers", "operator", "re", "statistics", "string", "struct", "textwrap",
    "unicodedata", r"urllib\.parse", "zlib",
)  # fmt: skip
# Arrays, tables, images, sound, texts and their scores.
_OTHERS = (
    "albumentations", "cv2", "decord", "editdistance", "einops", "ftfy", "imageio", "jiwer",
    "kornia", "langdetect", "latex2sympy2", "Levenshtein", "librosa", "math_verify", "nltk",
    "numexpr", "numpy", "opt_einsum", "orjson", "pandas", "PIL", "pyarrow", "pycocotools", "regex",
    "rouge_score", "sacrebleu", "scipy", "sentencepiece", "skimage", r"sklearn(?!\.externals)",
    "soundfile", "sympy", "tiktoken", "tokenizers", "torchaudio", "xxhash", "yaml",
    r"torchvision\.(io|ops|transforms|utils)", r"transformers\.(image_utils|tokenization_utils\w*)",
    r"transformers\.\w*(FeatureExtractor|Processor|Tokenizer|TokenizerFast)",
)  # fmt: skip
_WITHIN_PROCESS = re.compile(rf"({'|'.join((*_STANDARD, *_OTHERS))})\..*")


@lru_cache(maxsize=4096)
def works_within_process(name: str) -> bool:
    """Whether a function of a library, or a method of what it returned, never communicates."""
    return bool(_WITHIN_PROCESS.fullmatch(name))

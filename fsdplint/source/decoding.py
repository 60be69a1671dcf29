"""A Python file's bytes and its text."""

from __future__ import annotations

import codecs
import io
import tokenize


def decode(data: bytes) -> tuple[str, str, bool]:
    """The text (without byte order mark), the encoding, and whether there is a byte order mark.

    Raises:
        SyntaxError: the declared encoding does not exist or contradicts the byte order mark.
        UnicodeDecodeError: the content is not in the encoding that it declares.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:
        data.decode("utf-8")  # where its first lines are the trouble, this says more
        raise
    bom = data.startswith(codecs.BOM_UTF8)
    if bom:
        data = data[len(codecs.BOM_UTF8) :]
        encoding = "utf-8"
    try:
        return data.decode(encoding), encoding, bom
    except LookupError as error:  # a codec that does not make text
        raise SyntaxError(f"unknown encoding: {encoding}") from error

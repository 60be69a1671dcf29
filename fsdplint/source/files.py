"""Read Python and settings files as sources.

This module imports libcst only to parse a file.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.source import config_files, reading
from fsdplint.source.decoding import decode
from fsdplint.source.nesting import too_deep

if TYPE_CHECKING:
    from fsdplint.source.config_source import ConfigSource
    from fsdplint.source.notebooks import NotebookSource
    from fsdplint.source.source import Source

MAX_BYTES = 2 * 1024 * 1024  # of a file to read, unless the settings say otherwise
SUFFIXES = (".py", ".pyi", ".pyw", ".ipynb")
NOTEBOOK = ".ipynb"
PROGRAM_SUFFIXES = (".py", NOTEBOOK)  # of files that a command follows from their first line
MAX_NOTEBOOK_BYTES = reading.MAX_BYTES  # mostly images; the code has the limit of a file

SYNTAX_ERROR = "syntax error: "  # what the message of a problem with such an error begins with
_MEND = "correct it, or leave the file out with `exclude` in [tool.fsdplint]"
_LONE_CARRIAGE_RETURN = re.compile(r"\r(?!\n)")
_LONE_BACKSLASH = re.compile(r"^[ \t]*\\\r?\n", re.MULTILINE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_PARSER_POSITION = re.compile(r"Syntax Error @ (\d+):(\d+)\.\s*(.*)", re.DOTALL)


@dataclass(frozen=True)
class Problem:
    """A reason why a file was not checked; it is reported like a finding with `CODE`.

    Attributes:
        path: the file or folder, as shown to the user.
        line: the line to look at, if there is one.
        message: the problem, in a few words.
        hint: how to solve it.
        code, name: the code and name in reports.
    """

    path: str
    line: int | None
    message: str
    hint: str = ""
    code: str = "FSDP901"
    name: str = "unreadable-file"

    CODE = "FSDP901"
    NAME = "unreadable-file"

    @property
    def is_syntax_error(self) -> bool:
        """Whether the file is no Python, also for the Python that runs fsdplint."""
        return self.message.startswith(SYNTAX_ERROR)


class Unreadable(Exception):
    """A file cannot be checked; `problem` gives the reason."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def missing(shown: str, error: OSError | None = None) -> Problem:
    """The problem of a path that does not exist.

    error: the error of accessing it.
    """
    return Problem(shown, None, *_os_error_text(error or FileNotFoundError()))


def read_bytes(path: Path, limit: int = reading.MAX_BYTES) -> bytes:
    """The content of a file of at most `limit` bytes. Raises Unreadable."""
    try:
        return reading.read(path, limit)
    except reading.TooLarge as error:
        raise Unreadable(too_large(path, error.size, limit)) from error
    except OSError as error:
        raise Unreadable(missing(str(path), error)) from error


def open_source(path: Path, text: str | None = None) -> Source:
    """A Python or settings file, not parsed yet.

    text: the text to use instead of the file's content.

    Raises:
        Unreadable: the file is missing or cannot be decoded.
    """
    if config_files.is_config(path):
        return read_config(path, text)
    if path.suffix == NOTEBOOK:
        return _read_notebook(path, text, None, MAX_NOTEBOOK_BYTES)
    data = read_bytes(path) if text is None else text.encode("utf-8", "surrogatepass")
    if text is None:
        text, encoding, bom = decode_or_refuse(str(path), data)
    else:
        encoding, bom = _declared_encoding(data), False

    from fsdplint.source.source import Source

    return Source(str(path), text, encoding=encoding, bom=bom)


def read_source(
    path: Path,
    text: str | None = None,
    known: Source | None = None,
    max_bytes: int = MAX_BYTES,
) -> Source:
    """A file as a parsed source.

    Args:
        path: the file, as shown to the user.
        text: the text to use instead of the file's content.
        known: an earlier source of the file; it is returned if the content is unchanged.
        max_bytes: the largest size of code.

    Raises:
        Unreadable: the file is missing, too large, not decodable, not Python, or nested too deeply.
    """
    shown = str(path)
    if path.suffix == NOTEBOOK:
        return _read_notebook(path, text, known, max_bytes)
    data = read_bytes(path) if text is None else text.encode("utf-8", "surrogatepass")
    if len(data) > max_bytes:
        raise Unreadable(too_large(path, len(data), max_bytes))
    if text is None:
        text, encoding, bom = decode_or_refuse(shown, data)
    else:
        encoding, bom = _declared_encoding(data), False
    if known is not None and (known.text, known.encoding, known.bom) == (text, encoding, bom):
        return known
    _refuse_text(shown, text)

    import libcst as cst

    from fsdplint.source.source import Source

    source = Source(shown, text, encoding=encoding, bom=bom)
    if known is not None and known.typed_in:
        source.earlier, source.typed_in = known, True
    try:
        _ = source.tree
    except cst.ParserSyntaxError as error:
        raise Unreadable(_syntax_problem(shown, text, str(error))) from error
    _refuse_lone_backslash(source)
    return source


def _read_notebook(path: Path, text: str | None, known: Source | None, max_bytes: int) -> Source:
    """The code of a notebook.

    text: the file's content or, if the notebook is known, changed code for its cells.
    """
    import libcst as cst

    from fsdplint.source.notebooks import Notebook, NotebookError, NotebookSource

    shown = str(path)
    is_file = text is None or (text.lstrip().startswith("{") and '"nbformat"' in text)
    if text is not None and isinstance(known, NotebookSource) and not is_file:
        source = known if known.text == text else known.with_text(text)
    else:
        data = read_bytes(path) if text is None else text.encode("utf-8", "surrogatepass")
        if len(data) > MAX_NOTEBOOK_BYTES:
            raise Unreadable(too_large(path, len(data), MAX_NOTEBOOK_BYTES))
        raw = data.decode("utf-8", "surrogateescape")
        if isinstance(known, NotebookSource) and known.notebook.raw == raw:
            source = NotebookSource(shown, known.notebook)
            source = known if known.text == source.text else source
        else:
            try:
                source = NotebookSource(shown, Notebook(raw))
            except NotebookError as error:
                hint = "open and save it in Jupyter, or leave it out with `exclude`"
                raise Unreadable(Problem(shown, None, str(error), hint)) from error
    if len(source.text) > max_bytes:
        raise Unreadable(too_large(path, len(source.text), max_bytes))
    try:
        _refuse_text(shown, source.text)
        _ = source.tree
    except cst.ParserSyntaxError as error:
        problem = _syntax_problem(shown, source.text, str(error))
        raise Unreadable(_in_cell(problem, source)) from error
    except Unreadable as error:
        raise Unreadable(_in_cell(error.problem, source)) from error
    return source


def _in_cell(problem: Problem, source: NotebookSource) -> Problem:
    if problem.line is None:
        return problem
    number, line = source.cell_of(problem.line)
    return replace(problem, path=f"{problem.path}:cell {number}", line=line)


def read_config(path: Path, text: str | None = None) -> ConfigSource:
    """A settings file. Raises Unreadable if it is missing, not UTF-8, or not YAML or JSON."""
    from fsdplint.source.config_source import ConfigSource, ConfigSyntaxError

    if text is not None:
        source = ConfigSource(str(path), text)
    else:
        data = read_bytes(path)
        try:
            source = ConfigSource.from_data(str(path), data)
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise Unreadable(Problem(str(path), line, "not UTF-8", "save it as UTF-8")) from error
    try:
        source.parse()
    except ConfigSyntaxError as error:
        raise Unreadable(Problem(str(path), error.line, str(error), _MEND)) from error
    return source


def check_text(path: Path, data: bytes, max_bytes: int = MAX_BYTES) -> Problem | None:
    """The problem that prevents reading a file as Python, for a file that is not checked otherwise.

    A generated file that is too large is not reported, because it is irrelevant.
    """
    if path.suffix == NOTEBOOK or config_files.is_config(path):
        text = data.decode("utf-8", "surrogateescape")
        try:
            if path.suffix == NOTEBOOK:
                read_source(path, text, max_bytes=max_bytes)
            else:
                read_config(path, text)
        except Unreadable as unreadable:
            return unreadable.problem
        return None
    if len(data) > max_bytes:
        return None
    try:
        text, _, _ = decode_or_refuse(str(path), data)
        _refuse_text(str(path), text)
    except Unreadable as unreadable:
        return unreadable.problem
    error = _compile_error(text)
    return None if error is None else _from_syntax_error(str(path), error)


def read_program(path: Path) -> str:
    """The text of a file that Python compiles. Raises Unreadable if Python rejects it.

    A program that Python can run may still be impossible to check, for example if it is nested
    deeply.
    """
    text, _, _ = decode_or_refuse(str(path), read_bytes(path))
    error = _compile_error(text, full=True)
    if error is not None:
        raise Unreadable(_from_syntax_error(str(path), error))
    return text


def is_too_large(path: Path, data: bytes, max_bytes: int) -> bool:
    """Whether a file is larger than the limit for code; only the code of a notebook counts."""
    return len(data) > max_bytes and path.suffix != NOTEBOOK


def too_large(path: Path, size: int, limit: int) -> Problem:
    sizes = f"{size / 1e6:.1f} MB", f"{limit / 1e6:.1f} MB"
    if limit < 100_000 or sizes[0] == sizes[1]:
        sizes = f"{size:,} bytes", f"{limit:,} bytes"
    return Problem(
        str(path),
        None,
        f"too large to check ({sizes[0]}; the limit is {sizes[1]})",
        "in [tool.fsdplint], leave a generated file out with `exclude`, or raise `max-file-size`",
    )


def decode_or_refuse(shown: str, data: bytes) -> tuple[str, str, bool]:
    """Decode a file's content as `decode` does. Raises Unreadable."""
    try:
        return decode(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        name = "UTF-8" if error.encoding in ("utf-8", "utf8") else error.encoding
        problem = Problem(
            shown,
            line,
            f"not {name}: byte 0x{data[error.start]:02x} cannot be decoded",
            "save it as UTF-8, or declare its encoding in the first line (`# -*- coding: ... -*-`)",
        )
        raise Unreadable(problem) from error
    except SyntaxError as error:
        problem = Problem(
            shown, 1, str(error.msg), "declare an encoding that Python knows, or save it as UTF-8"
        )
        raise Unreadable(problem) from error


def _declared_encoding(data: bytes) -> str:
    try:
        return decode(data[:4096])[1]
    except (SyntaxError, UnicodeDecodeError):
        return "utf-8"


def _refuse_text(shown: str, text: str) -> None:
    """Refuse a text that crashes the parser or that it does not reproduce. Raises Unreadable."""
    null = text.find("\0")  # Python rejects it even in strings and comments
    if null >= 0:
        line = text.count("\n", 0, null) + 1
        raise Unreadable(Problem(shown, line, "syntax error: null byte", "remove it"))
    surrogate = _SURROGATE.search(text)
    if surrogate is not None:
        line = text.count("\n", 0, surrogate.start()) + 1
        message = f"a lone surrogate, \\u{ord(surrogate.group()):04x}, is not a character"
        raise Unreadable(Problem(shown, line, message, "write the whole character"))
    deep = too_deep(text)
    if deep is not None:
        raise Unreadable(
            Problem(
                shown,
                deep,
                "nested too deeply to be read",
                "split the expression, or leave the file out with `exclude` in [tool.fsdplint]",
            )
        )
    lone = _LONE_CARRIAGE_RETURN.search(text)
    if lone is not None and lone.end() < len(text):
        raise Unreadable(
            Problem(
                shown,
                text.count("\n", 0, lone.start()) + 1,
                "a line ends with a lone carriage return",
                "convert the line ends to LF or CRLF",
            )
        )


def _refuse_lone_backslash(source: Source) -> None:
    """Refuse a file with a line that holds only a backslash. Raises Unreadable.

    The parser skips such a line and may assign the next line to the wrong block.
    """
    lone = _LONE_BACKSLASH.search(source.text)
    if lone is None or source.tree.code == source.text:
        return
    line = source.text.count("\n", 0, lone.start()) + 1
    hint = "remove the line"
    raise Unreadable(Problem(source.path, line, "a line holds a backslash only", hint))


def _compile_error(text: str, *, full: bool = False) -> SyntaxError | None:
    """Python's own syntax error for a text, if any.

    full: also compile the text, which finds more errors than parsing.
    """
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flags = 0 if full else ast.PyCF_ONLY_AST
            compile(text, "<unknown>", "exec", flags, dont_inherit=True)
    except SyntaxError as error:
        return error
    except (ValueError, MemoryError, RecursionError) as error:
        return SyntaxError(str(error) or "nested too deeply")
    return None


def _syntax_problem(shown: str, text: str, parser_message: str) -> Problem:
    error = _compile_error(text)
    if error is not None:
        return _from_syntax_error(shown, error)
    match = _PARSER_POSITION.match(parser_message)
    line, message = (int(match.group(1)), match.group(3)) if match else (None, parser_message)
    message = message.strip().splitlines()[0] if message.strip() else "syntax error"
    return Problem(shown, line, f"cannot be parsed: {message}", "a newer libcst may read it")


def _from_syntax_error(shown: str, error: SyntaxError) -> Problem:
    return Problem(
        shown,
        error.lineno or None,
        f"{SYNTAX_ERROR}{error.msg}",
        _MEND,
    )


def _os_error_text(error: OSError) -> tuple[str, str]:
    """A message and a hint for a file that cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return "no such file or folder", "check the path"
    if isinstance(error, PermissionError):
        return "permission denied", "make it readable for this user, or leave it out"
    if isinstance(error, reading.NotRegular):
        return str(error.strerror), "give a regular file, or a program on standard input with `-`"
    if isinstance(error, reading.TooLarge):
        sizes = f"{error.size:,} bytes; the limit is {error.limit:,} bytes"
        return f"too large to be read ({sizes})", "check that it is what its name says"
    if error.errno == errno.ELOOP:
        return "a link that leads to itself", "remove or mend the link"
    return f"cannot be read: {error.strerror or error}", "check that it is an ordinary file"

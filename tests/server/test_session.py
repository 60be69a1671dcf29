"""Bytes that no editor sends: what is wrong is answered, and the session goes on or ends clearly."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls")

PATIENCE = 240  # seconds: so long that only what never ends meets it
HEAD = "from torch.distributed.fsdp import fully_shard\n"
COMMAND = [sys.executable, "-m", "fsdplint", "server"]
INITIALIZE = {"capabilities": {}, "processId": None, "rootUri": None}


def framed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def message(method: str, params: Any = None, number: int | None = None) -> bytes:
    data = {"jsonrpc": "2.0", "method": method, "params": params}
    return framed(json.dumps(data if number is None else {**data, "id": number}).encode())


def opened(uri: str, text: str) -> bytes:
    item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    return message("textDocument/didOpen", {"textDocument": item})


def asked(method: str, uri: str, number: int) -> bytes:
    place = {"line": 0, "character": 0}
    return message(method, {"textDocument": {"uri": uri}, "position": place}, number)


BEGIN = message("initialize", INITIALIZE, 1)
END = message("shutdown", None, 99)
EXIT = message("exit")


def serve(folder: Path, data: bytes) -> tuple[int, dict[Any, Any], str]:
    """The exit code, the error code of each answer by its id (None: no error), and the errors."""
    done = subprocess.run(COMMAND, input=data, capture_output=True, cwd=folder, timeout=PATIENCE)
    errors = done.stderr.decode()
    assert "Traceback" not in errors and b"Traceback" not in done.stdout
    answers = {}
    for part in re.split(rb"Content-Length: \d+\r\n(?:Content-Type: [^\r]*\r\n)?\r\n", done.stdout):
        one = json.loads(part or b"{}")
        if "id" in one:
            answers[one["id"]] = one.get("error", {}).get("code")
    return done.returncode, answers, errors


def test_what_is_wrong_is_answered_and_the_session_goes_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    pipe = (tmp_path / "pipe.py").as_uri()
    file = (tmp_path / "a.py").as_uri()
    deep = b'{"jsonrpc": "2.0", "id": 5, "method": "foo", "params": ' + b"[" * 50_000
    no_messages = [
        b"{no",
        b"",
        b'"\xff"',
        b"[1, 2]",
        b"5",
        b'{"id": 3}',
        deep,
        deep + b"]" * 50_000,
    ]
    documents = [
        opened(file, f"{HEAD}x = {'(' * 50_000}{')' * 50_000}"),
        opened(file, f"{HEAD}x = '\ud800'\n"),
        *(opened(uri, HEAD) for uri in (pipe, "file:///dev/zero", "", "file://[bad/x.py", "a:b")),
        opened(f"file:///{'a' * 9000}.py", HEAD),
        message(
            "textDocument/didChange",
            {"textDocument": {"uri": file, "version": 2}, "contentChanges": [{"text": ""}]},
        ),
    ]
    code, answers, errors = serve(
        tmp_path,
        b"".join(
            [
                asked("textDocument/hover", file, 10),  # before `initialize`
                message("initialize", None, 11),
                b"content-length:" + BEGIN.partition(b":")[2],  # names of headers have no case
                message("initialize", INITIALIZE, 12),
                *map(framed, no_messages),
                message("foo/bar", {}, 13),
                message("foo/bar"),
                message("textDocument/hover", None, 14),
                message("textDocument/hover", {"textDocument": 5}, 15),
                message("textDocument/didOpen"),
                message("$/cancelRequest", {"id": 77}),
                framed(b'{"jsonrpc": "2.0", "id": 777, "result": null}'),
                message("workspace/didChangeConfiguration", {"settings": {"select": 5}}),
                *documents,
                asked("textDocument/hover", file, 16),
                asked("textDocument/hover", pipe, 17),
                asked("textDocument/hover", "file:///dev/zero", 18),
                END,
                asked("textDocument/hover", file, 19),
                EXIT,
            ]
        ),
    )
    assert (code, errors) == (0, "")
    assert answers.pop(None) in (-32700, -32600)
    assert answers == {
        **{1: None, 10: -32002, 11: -32602, 12: -32600, 13: -32601, 14: -32602, 15: -32602},
        **{16: None, 17: None, 18: None, 99: None, 19: -32600},
    }


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (BEGIN, 1, ""),
        (BEGIN + EXIT, 1, ""),
        (BEGIN + b"Content-Length: 100\r\n\r\n{}", 1, ""),
        (BEGIN + b"Content-Length: 90000000000\r\n\r\n{}", 2, "90,000,000,000 bytes; the limit"),
        (BEGIN + b"Content-Length: " + b"9" * 6000 + b"\r\n\r\n", 2, "no Content-Length"),
        (BEGIN + b"Content-Length: -5\r\n\r\n{}", 2, "no Content-Length that is a number"),
        (BEGIN + b"x" * 100_000, 2, "a line of a header has over"),
    ],
    ids=["end", "exit", "cut", "large", "digits", "negative", "line"],
)
def test_how_it_ends_without_a_shutdown(tmp_path: Path, data: bytes, code: int, words: str) -> None:
    ended, answers, errors = serve(tmp_path, data)
    assert ended == code and answers == {1: None}
    assert words in errors and errors.count("\n") == bool(words)


@pytest.mark.parametrize("kind", ["closed", "full"])
def test_an_editor_that_takes_no_answer(tmp_path: Path, kind: str) -> None:
    """Standard input stays open: nothing but the answer tells that it is gone."""
    if kind == "full" and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    read_end, output = os.pipe()
    os.close(read_end)
    if kind == "full":
        os.close(output)
        output = os.open("/dev/full", os.O_WRONLY)
    pipe = subprocess.PIPE
    with subprocess.Popen(COMMAND, cwd=tmp_path, stdin=pipe, stdout=output, stderr=pipe) as server:
        os.close(output)
        assert server.stdin is not None and server.stderr is not None
        server.stdin.write(BEGIN)
        server.stdin.flush()
        code = server.wait(PATIENCE)
        errors = server.stderr.read().decode()
    full = "error: standard output: No space left on device\n"
    assert (code, errors) == ((1, "") if kind == "closed" else (2, full))

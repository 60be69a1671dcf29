"""The session with an editor: reads messages from standard input, and ends the process.

An invalid message is answered with an error, and the session goes on. It ends when the editor ends
it or is gone, or when the start of the next message cannot be found.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from fsdplint.server.language_server import Server
from fsdplint.source.debug import debugging

MAX_BYTES = 100 * 1024 * 1024  # of one message
MAX_HEADER = 8192  # bytes of one line of a header
ABORTED, FAILED = 1, 2  # exit codes
PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, NOT_INITIALIZED = -32700, -32600, -32602, -32002

_LENGTH = re.compile(rb"content-length:[ \t]*(\d{1,15})[ \t]*", re.IGNORECASE)
_CHUNK = 65536


class FramingError(Exception):
    """The next message cannot be found in the bytes; the text says why."""


class Output:
    """Standard output as a writer for pygls.

    Attributes:
        error: the error of the first write that failed; nothing is written after it.
    """

    def __init__(self, lost: asyncio.Event) -> None:
        self.error: OSError | None = None
        self._lost = lost

    def write(self, data: bytes) -> None:
        if self.error is not None:
            return
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError as error:
            self.error = error
            self._lost.set()

    def close(self) -> None:
        pass


def bodies(descriptor: int) -> Iterator[bytes]:
    """The bodies of the messages that are read from a descriptor.

    Raises:
        FramingError: the header of a message is invalid.
        OSError: the descriptor cannot be read.
    """
    # Python's own buffer has a lock, which a blocked thread would hold when the process ends.
    data = bytearray()

    def more() -> bool:
        part = os.read(descriptor, _CHUNK)
        data.extend(part)
        return bool(part)

    while True:
        length, lines = None, 0
        while True:
            while b"\n" not in data:
                if len(data) > MAX_HEADER:
                    raise FramingError(f"a line of a header has over {MAX_HEADER} bytes")
                if not more():
                    return
            line, _, rest = bytes(data).partition(b"\n")
            data[:] = rest
            if not line.strip():
                if lines:
                    break
                continue
            lines += 1
            found = _LENGTH.fullmatch(line.strip())
            length = int(found[1]) if found else length
        if length is None:
            raise FramingError("a header has no Content-Length that is a number")
        if length > MAX_BYTES:
            raise FramingError(f"a message has {length:,} bytes; the limit is {MAX_BYTES:,}")
        while len(data) < length:
            if not more():
                return
        yield bytes(data[:length])
        del data[:length]


class Session:
    """The state of the session.

    Attributes:
        shut_down: whether the editor has requested the shutdown.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._initialized = False
        self.shut_down = False

    def handle(self, body: bytes) -> None:
        """Handle one message; an invalid one is answered with an error."""
        try:
            data = json.loads(body)
        except (ValueError, RecursionError) as error:
            self._refuse(None, PARSE_ERROR, f"not JSON in UTF-8: {error}")
            return
        if not isinstance(data, dict) or data.get("jsonrpc") != "2.0":
            self._refuse(None, INVALID_REQUEST, "not a message of JSON-RPC 2.0")
            return
        method, number = data.get("method"), data.get("id")
        if method is not None and not self._is_permitted(method, number):
            return
        try:
            message = self._server.protocol.structure_message(data)
        except JsonRpcException as error:
            if method is not None and number is not None:
                self._refuse(number, INVALID_PARAMS, f"{method}: {error}")
            return
        uri = self._unopened_document(message) if self._initialized else None
        if uri is not None:  # the protocol has no answer to a notification
            self._log(f"ignored {method}: {uri} is not open")
            return
        self._server.protocol.handle_message(message)
        self._initialized = self._initialized or method == types.INITIALIZE
        self.shut_down = self.shut_down or method == types.SHUTDOWN

    def _unopened_document(self, message: object) -> str | None:
        """The document that a message changes although it is not open; None for other messages."""
        workspace = self._server.workspace
        if isinstance(message, types.DidChangeTextDocumentNotification):
            uri, opened = message.params.text_document.uri, workspace.text_documents.keys()
        elif isinstance(message, types.DidChangeNotebookDocumentNotification):
            uri, opened = message.params.notebook_document.uri, workspace.notebook_documents.keys()
        else:
            return None
        return None if unquote(uri) in opened else uri

    def _log(self, text: str) -> None:
        """Write a line into the editor's log of the server."""
        self._server.window_log_message(
            types.LogMessageParams(types.MessageType.Warning, f"fsdplint: {text}")
        )

    def _is_permitted(self, method: object, number: object) -> bool:
        """Whether the protocol allows a message now; refuses a request that it does not."""
        if method == types.EXIT:
            return True
        if self.shut_down:
            code, reason = INVALID_REQUEST, "the server was shut down"
        elif self._initialized == (method == types.INITIALIZE):
            is_first = not self._initialized
            code = NOT_INITIALIZED if is_first else INVALID_REQUEST
            reason = f"the server is {'not' if is_first else 'already'} initialized"
        else:
            return True
        if number is not None:
            self._refuse(number, code, reason)
        return False

    def _refuse(self, number: object, code: int, reason: str) -> None:
        answer = {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": reason}}
        body = json.dumps(answer).encode()
        writer = self._server.protocol.writer
        if writer is not None:
            writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def serve(server: Server) -> int:
    """Answer an editor until the session ends; returns the exit code.

    The code is 0 after `shutdown`, 1 if the editor ended without one (as the protocol demands), and
    2 if standard input or output fails.
    """
    if not debugging():
        log = logging.getLogger("pygls")  # errors go to the editor; do not print tracebacks
        log.addHandler(logging.NullHandler())
        log.propagate = False
    return asyncio.run(_serve(server))


async def _serve(server: Server) -> int:
    loop = asyncio.get_running_loop()
    lost, queue = asyncio.Event(), asyncio.Queue[Any]()
    output, session = Output(lost), Session(server)
    server.protocol.set_writer(output)

    def read_input() -> None:
        end: Exception | None = None
        try:
            for body in bodies(sys.stdin.fileno()):
                loop.call_soon_threadsafe(queue.put_nowait, body)
        except (FramingError, OSError) as error:
            end = error
        try:
            loop.call_soon_threadsafe(queue.put_nowait, end)
        except RuntimeError:  # the loop has ended meanwhile
            pass

    threading.Thread(target=read_input, daemon=True).start()
    try:
        while True:
            waiting = [asyncio.ensure_future(one) for one in (queue.get(), lost.wait())]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for one in waiting:
                one.cancel()
            if output.error is not None:
                return _report_end(output.error, "standard output")
            body = waiting[0].result()
            if not isinstance(body, bytes):
                return _report_end(body, "standard input") if body else int(not session.shut_down)
            session.handle(body)
    except SystemExit as end:  # the notification `exit`
        return int(end.code or 0)
    finally:
        if server.schedule is not None:
            server.schedule.stop()


def _report_end(error: Exception, stream: str) -> int:
    """Print why the session cannot go on; returns the exit code."""
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return ABORTED  # the editor is gone
    reason = error.strerror if isinstance(error, OSError) else str(error)
    print(f"error: {stream}: {reason}", file=sys.stderr)
    return FAILED

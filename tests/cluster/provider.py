"""A provider that knows its keys: each is served or refused as the test says, and counted."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Provider:
    """Listens on loopback while it is entered. A key that it has no status for is served."""

    def __init__(self) -> None:
        self.statuses: dict[str, int] = {}
        """Key to what it is answered."""
        self.sent: list[tuple[str, str]] = []
        """Request id and key of each request, as they came."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def counts(self) -> Counter[str]:
        """How often each key was sent."""
        return Counter(key for _, key in self.sent)

    def sent_twice(self) -> set[tuple[str, str]]:
        """Requests that came more than once with one key."""
        return {pair for pair, times in Counter(self.sent).items() if times > 1}

    @contextmanager
    def listening(self) -> Iterator[Provider]:
        """Answer until the end of this context."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                key = self.headers.get("authorization", "").removeprefix("Bearer ")
                provider.sent.append((self.headers["x-request-id"], key))
                status = provider.statuses.get(key, 200)
                if status != 200:
                    self._answer(status, _error(f"the key {key} is refused"))
                elif asked.get("stream"):
                    self._answer(200, _stream(key), "text/event-stream")
                else:
                    self._answer(200, json.dumps(_completion("message", key)).encode())

            def _answer(
                self, status: int, body: bytes, content_type: str = "application/json"
            ) -> None:
                with contextlib.suppress(ConnectionError):
                    self.send_response(status)
                    self.send_header("content-type", content_type)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        return Handler


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "t", "code": None}}).encode()


def _completion(part: str, key: str, finish: str | None = "stop") -> dict[str, Any]:
    """An answer, or a chunk of one, that names who has given it by the key's last letters."""
    said = {"role": "assistant", "content": "hi"}
    return {
        "id": "c",
        "model": "m",
        "system_fingerprint": key[-6:],
        "choices": [{"index": 0, part: said, "finish_reason": finish}],
    }


def _stream(key: str) -> bytes:
    chunk = json.dumps(_completion("delta", key))
    return f"data: {chunk}\n\ndata: [DONE]\n\n".encode()

"""A provider that takes so many requests at a time, and answers all others 429."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER: dict[str, Any] = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    ],
}


class Crowded:
    """Listens, while it is entered, where nobody takes it for this host's own engine."""

    def __init__(self, most: int, *, takes_s: float) -> None:
        self.refused = 0
        self.most_active = 0
        self._most, self._takes_s = most, takes_s
        self._active = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.2", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.2:{self._server.server_port}"

    @contextmanager
    def listening(self) -> Iterator[Crowded]:
        """Answer until the end of this context."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _enter(self) -> bool:
        with self._lock:
            if self._active >= self._most:
                self.refused += 1
                return False
            self._active += 1
            self.most_active = max(self.most_active, self._active)
            return True

    def _leave(self) -> None:
        with self._lock:
            self._active -= 1

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                if not provider._enter():
                    return self._answer(429, {"error": {"message": "slow down", "type": "t"}})
                time.sleep(provider._takes_s)
                provider._leave()
                self._answer(200, ANSWER)

            def _answer(self, status: int, content: dict[str, Any]) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        return Handler

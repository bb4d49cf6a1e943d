"""nginx with the configuration that ships: which failures of replicas it hides, and which not.

The replicas here are stand-ins, for a real one cannot be made to vanish on one machine.
"""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from tests.cluster.harness import Nginx

Start = Callable[..., str]


class Well:
    """Answers every POST, and counts them; or keeps silent until its end."""

    def __init__(self, *, is_silent: bool = False) -> None:
        self.posts = 0
        self.ended = threading.Event()
        well = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                well.posts += 1
                if is_silent:
                    well.ended.wait()
                    return
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def __enter__(self) -> Well:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Vanished:
    """Neither takes nor refuses a connection, as a host that has lost its power."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.port = int(self._listener.getsockname()[1])
        self._waiting = [socket.socket() for _ in range(4)]  # more than the line is long
        for one in self._waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", self.port))

    def __enter__(self) -> Vanished:
        return self

    def __exit__(self, *_: object) -> None:
        for one in (*self._waiting, self._listener):
            one.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start nginx in front of some, with its timeouts cut to a second; its URL."""
    with ExitStack() as stack:

        def start(*replicas: Well | Vanished) -> str:
            nginx = Nginx(tmp_path / "nginx", cast(Any, [stack.enter_context(r) for r in replicas]))
            path = tmp_path / "nginx" / "nginx.conf"
            text = path.read_text("utf-8")
            for whole in ("proxy_connect_timeout 5s", "proxy_read_timeout 620s"):
                assert whole in text
                text = text.replace(whole, whole.rsplit(" ", 1)[0] + " 1s")
            path.write_text(text, "utf-8")
            nginx.start()
            stack.callback(nginx.stop)
            return nginx.url

        yield start


def test_a_replica_whose_host_has_vanished_costs_no_request(start: Start) -> None:
    well = Well()
    url = start(Vanished(), well)
    for n in range(1, 4):
        assert httpx.post(url, content=b"{}", timeout=30).status_code == 200
        assert well.posts == n


def test_a_request_that_was_sent_is_not_sent_again(start: Start) -> None:
    silent = [Well(is_silent=True), Well(is_silent=True)]
    url = start(*silent)
    assert httpx.post(url, content=b"{}", timeout=30).status_code == 504
    assert sum(one.posts for one in silent) == 1

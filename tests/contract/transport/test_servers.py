"""Servers that others wrote: nginx with files, uvicorn with an application."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.transport.peers import fetch, make_request, read

FILE = random.Random(1).randbytes(3 * 1024 * 1024)

NGINX = """
daemon off;
master_process off;
pid nginx.pid;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  keepalive_requests 100;
  client_max_body_size 64k;
  server {{
    listen 127.0.0.1:{port};
    location / {{ root .; }}
    location /moved {{ return 301 /file; }}
    location /limited {{ limit_except GET {{ deny all; }} root .; }}
  }}
}}
"""

APPLICATION = '''
"""Echo, stream, count, refuse."""
import asyncio
import hashlib


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    path, size, digest = scope["path"], 0, hashlib.sha256()
    if path == "/refuse":
        await reply(send, 413, b"too large")
        return
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        part = message.get("body", b"")
        digest.update(part)
        body += part if path == "/echo" else b""
        more = message.get("more_body", False)
    if path == "/echo":
        await reply(send, 200, body)
    elif path == "/digest":
        await reply(send, 200, digest.hexdigest().encode())
    elif path == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for n in range(50):
            part = b"data: %d\\n\\n" % n
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0.001)
        await send({"type": "http.response.body", "body": b""})


async def reply(send, status, body):
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
'''


def listening_port(process: subprocess.Popen[bytes], port: int) -> int:
    """Wait until a process listens on its port."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        assert process.poll() is None, f"ended with {process.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return port
        time.sleep(0.02)
    raise AssertionError("does not listen")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(command: list[str], folder: Path, port: int) -> Iterator[str]:
    """A server process in a folder, and its address."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{listening_port(process, port)}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    binary = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if binary is None:
        pytest.skip("needs nginx")
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    folder.chmod(0o755)
    (folder / "nginx.conf").write_text(NGINX.format(port=port))
    (folder / "file").write_bytes(FILE)
    (folder / "empty").touch()
    command = [binary, "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]
    with running(command, folder, port) as url:
        yield url


@pytest.fixture(scope="module", params=["httptools", "h11"])
def uvicorn(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("uvicorn"), free_port()
    (folder / "application.py").write_text(APPLICATION)
    command = [sys.executable, "-m", "uvicorn", "application:app", "--port", str(port)]
    command += ["--http", request.param, "--timeout-keep-alive", "1", "--no-access-log"]
    with running(command, folder, port) as url:
        yield url


async def test_nginx_serves_a_file(transport: httpx.AsyncBaseTransport, nginx: str) -> None:
    assert await fetch(transport, f"{nginx}/file", None, method="GET") == (200, FILE)
    part = {"range": "bytes=1000-1999"}
    answer = await fetch(transport, f"{nginx}/file", None, method="GET", headers=part)
    assert answer == (206, FILE[1000:2000])


async def test_nginx_answers_without_a_body(
    transport: httpx.AsyncBaseTransport, nginx: str
) -> None:
    request = make_request(f"{nginx}/file", None, method="HEAD")
    response = await transport.handle_async_request(request)
    assert await read(response) == b""
    assert response.headers["content-length"] == str(len(FILE))

    again = {"if-none-match": response.headers["etag"]}
    answer = await fetch(transport, f"{nginx}/file", None, method="GET", headers=again)
    assert answer == (304, b"")
    assert await fetch(transport, f"{nginx}/empty", None, method="GET") == (200, b"")
    assert (await fetch(transport, f"{nginx}/moved", None, method="GET"))[0] == 301


async def test_nginx_may_close_after_a_hundred_requests(
    transport: httpx.AsyncBaseTransport, nginx: str
) -> None:
    async def client() -> None:
        for _ in range(250):
            answer = await fetch(transport, f"{nginx}/empty", None, method="GET")
            assert answer == (200, b"")

    await asyncio.gather(*(client() for _ in range(4)))


async def test_nginx_refuses_a_large_body_early(
    transport: httpx.AsyncBaseTransport, nginx: str
) -> None:
    # nginx says so and hangs up, which can cost a client the answer; our caller is told either way.
    try:
        status, _ = await fetch(transport, f"{nginx}/file", FILE)
    except (httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError):
        status = 413
    assert status == 413
    assert (await fetch(transport, f"{nginx}/empty", None, method="GET"))[0] == 200


async def test_uvicorn_echoes(transport: httpx.AsyncBaseTransport, uvicorn: str) -> None:
    for size in (0, 1, 1_000, 100_000):
        assert await fetch(transport, f"{uvicorn}/echo", FILE[:size]) == (200, FILE[:size])


async def test_uvicorn_takes_a_large_body(
    transport: httpx.AsyncBaseTransport, uvicorn: str
) -> None:
    digest = hashlib.sha256(FILE).hexdigest().encode()

    answers = await asyncio.gather(*(fetch(transport, f"{uvicorn}/digest", FILE) for _ in range(3)))

    assert answers == [(200, digest)] * 3


async def test_uvicorn_streams(transport: httpx.AsyncBaseTransport, uvicorn: str) -> None:
    events = b"".join(b"data: %d\n\n" % n for n in range(50))

    answers = await asyncio.gather(*(fetch(transport, f"{uvicorn}/stream") for _ in range(10)))

    assert answers == [(200, events)] * 10


async def test_uvicorn_refuses_a_large_body_early(
    transport: httpx.AsyncBaseTransport, uvicorn: str
) -> None:
    for _ in range(3):
        assert await fetch(transport, f"{uvicorn}/refuse", FILE) == (413, b"too large")
    assert await fetch(transport, f"{uvicorn}/echo", b"abc") == (200, b"abc")

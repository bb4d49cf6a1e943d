"""The upstreams: nginx with answers from files, and the server of paced streams."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path

import httpx
from msgspec import Struct

from tests.bench import payloads
from tests.bench.machine import HOST, free_ports, tool
from tests.bench.processes import Process, fill, wait_up

START_S = 20
HTTP = httpx.Client(trust_env=False, timeout=10)
HEADERS = {"content-type": "application/json"}
NGINX = """\
daemon off;
master_process off;
pid @FOLDER@/nginx.pid;
error_log stderr error;
worker_rlimit_nofile 16384;
events { worker_connections 8192; }
http {
    access_log off;
    client_body_temp_path @FOLDER@/client;
    proxy_temp_path @FOLDER@/proxy;
    fastcgi_temp_path @FOLDER@/fastcgi;
    uwsgi_temp_path @FOLDER@/uwsgi;
    scgi_temp_path @FOLDER@/scgi;
    client_body_buffer_size 64k;
    keepalive_timeout 3600s;
    keepalive_requests 1000000000;
    tcp_nodelay on;
    open_file_cache max=100 inactive=3600s;
    open_file_cache_valid 3600s;
@HTTP@
}
"""
ANSWERS = """\
    server {
        listen @HOST@:@A@ backlog=2048;
        listen @HOST@:@B@ backlog=2048;
        root @FOLDER@/@KIND@;
        default_type @TYPE@;
        error_page 405 =200 $uri;
        location / { default_type application/json; return 200 '{}'; }
        location /v1/models {
            default_type application/json;
            return 200 '{"object":"list","data":[{"id":"@MODEL@","object":"model"}]}';
        }
        location = @PATH@ { }
        location = /served { stub_status; }
    }
"""
"""A POST to a file is a 405, which nginx answers with the file all the same."""


class Kind(StrEnum):
    """What upstreams answer."""

    WHOLE = "whole"
    """A completion."""
    UNPACED = "unpaced"
    """A stream as fast as it goes."""
    PACED = "paced"
    """A stream of one token per interval, without end."""


class Upstreams(Struct, frozen=True):
    """Where the upstreams are: base URLs without `/v1`, two of each kind."""

    urls: dict[Kind, tuple[str, str]]

    def pace(self, interval_ms: int) -> None:
        """Set the interval of paced streams that begin from now on."""
        HTTP.post(f"{self.urls[Kind.PACED][0]}/pace?ms={interval_ms}").raise_for_status()

    def served(self) -> int:
        """Requests that the upstreams of whole answers have had, with those of unpaced streams."""
        answer = HTTP.get(f"{self.urls[Kind.WHOLE][0]}/served").raise_for_status()
        return int(answer.text.split()[9])


def fault(url: str, kind: Kind, headers: Mapping[str, str]) -> str:
    """Say what is wrong with the answer to a chat request, or nothing. Raises httpx's errors."""
    body = payloads.request(stream=kind is not Kind.WHOLE)
    content = bytearray()
    call = HTTP.stream("POST", url + payloads.PATH, content=body, headers=headers)
    with call as answer:
        for data in answer.iter_raw():
            content += data
            if kind is Kind.PACED and payloads.has_begun(bytes(content)):
                return ""
    good = payloads.is_completion if kind is Kind.WHOLE else payloads.is_stream
    if answer.status_code == 200 and good(bytes(content)):
        return ""
    return f"{answer.status_code} {bytes(content[:200])!r}"


def nginx(folder: Path, http: str, cores: Collection[int], name: str) -> Process:
    """An nginx in a single process; `http` is the rest of its configuration."""
    conf = folder / f"{name}.conf"
    conf.write_text(fill(NGINX, {"HTTP": http, "FOLDER": folder}), "utf-8")
    command = [tool("nginx"), "-p", str(folder), "-c", str(conf), "-e", "stderr"]
    return Process(command, cores, folder / f"{name}.log")


@contextmanager
def serve(folder: Path, cores: Collection[int]) -> Iterator[Upstreams]:
    """Start both servers."""
    ports = free_ports(6)
    urls = [f"http://{HOST}:{port}" for port in ports]
    upstreams = Upstreams(dict(zip(Kind, zip(urls[::2], urls[1::2], strict=True), strict=True)))
    http = _answer(folder, Kind.WHOLE, "application/json", payloads.completion(), ports[0:2])
    http += _answer(folder, Kind.UNPACED, "text/event-stream", payloads.stream(), ports[2:4])
    pacer = [sys.executable, "-m", "tests.bench.paced", *map(str, ports[4:])]
    with (
        nginx(folder, http, cores, "upstream") as files,
        Process(pacer, cores, folder / "paced.log") as paced,
    ):
        for kind, (url, _) in upstreams.urls.items():
            process = paced if kind is Kind.PACED else files
            wait_up(process, partial(fault, url, kind, HEADERS), START_S)
        yield upstreams


def _answer(folder: Path, kind: Kind, content_type: str, content: bytes, ports: list[int]) -> str:
    """Write an answer, and the server that gives it."""
    file = folder / kind / payloads.PATH.lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    names = {"A": ports[0], "B": ports[1], "HOST": HOST, "KIND": kind, "TYPE": content_type}
    return fill(ANSWERS, names | {"MODEL": payloads.MODEL, "PATH": payloads.PATH, "FOLDER": folder})

"""A thin HTTP/1.1 client behind httpx's transport interface, for calls that must cost little.

request.py     a request as bytes, and the refusal of one that would not be one request
exchange.py    one request and its response: what is awaited, the parser, the body
connection.py  one socket: the asyncio protocol between an exchange and its transport
pool.py        the connections to one origin: reuse, idle expiry, connecting
transport.py   `Http1Transport`: a pool per origin; each request is sent once

It speaks HTTP/1.1 and nothing else: no HTTP/2, proxies, redirects, cookies, decompression,
upgrades or pipelining. It starts no tasks and reads no environment.
"""

from __future__ import annotations

from gateway.dispatch.http1.transport import KEEPALIVE_S, Http1Transport

__all__ = ["KEEPALIVE_S", "Http1Transport"]

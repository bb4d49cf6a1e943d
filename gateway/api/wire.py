"""HTTP on the wire: uvicorn's protocol, with a bound on heads and refusals in our own shape."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.api.responses import error_body
from gateway.errors import InvalidRequest

MAX_HEAD_BYTES = 65_536


class MalformedHttp(InvalidRequest):
    """The request is not HTTP as we speak it."""

    code = "malformed_http"


class HeadTooLarge(InvalidRequest):
    """The request's line and headers are over the cap."""

    status = 431
    code = "headers_too_large"


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose head does not end within the cap, before anyone is asked who it is.

    What came together with the end of a head is not counted: it may be the body.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._is_in_head = True

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client."""
        super().data_received(data)
        if not self._is_in_head or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(HeadTooLarge(f"The headers are larger than {MAX_HEAD_BYTES} bytes."))

    def on_message_begin(self) -> None:
        """A request begins."""
        self._head_bytes, self._is_in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head has ended."""
        self._is_in_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed."""
        self._refuse(MalformedHttp(msg))

    def _refuse(self, error: InvalidRequest) -> None:
        body = error_body(error)
        self.transport.write(
            b"HTTP/1.1 %d \r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (error.status, len(body), body)
        )
        self.transport.close()

"""Which headers come in, which go on, and what a client cannot move by any of them."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.cluster.harness import ADMIN_KEY, body, free_port
from tests.integration.conftest import KEYS, UPSTREAM_KEY, Gateway
from tests.integration.scripted import upstream

PATH = "/v1/chat/completions"
TO_UPSTREAM = {
    "host",
    "accept",
    "accept-encoding",
    "authorization",
    "content-length",
    "content-type",
    "user-agent",
    "x-request-id",
}
TRACE = f"00-{'a1' * 16}-{'b2' * 8}-01"
ALICE = KEYS[0]["key"]


async def raw(gateway: Gateway, request: bytes) -> bytes:
    """Send these bytes, and read until the gateway hangs up."""
    port = gateway.cluster.replicas[0].port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


async def test_of_the_clients_headers_only_the_trace_goes_on(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    # Given a client with credentials, cookies, hop-by-hop and forwarding headers
    headers = {
        "authorization": "Bearer sk-of-the-client",
        "x-api-key": "sk-of-the-client",
        "api-key": "sk-of-the-client",
        "cookie": "session=secret",
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
        "te": "trailers",
        "proxy-authorization": "Basic c2VjcmV0",
        "forwarded": "for=1.2.3.4",
        "x-forwarded-for": "1.2.3.4",
        "x-forwarded-host": "evil.example",
        "openai-organization": "org-secret",
        "user-agent": "mine",
        "accept-encoding": "br",
        "traceparent": TRACE,
        "tracestate": "vendor=1",
        "baggage": "user=secret",
        "x-request-id": "mine-1",
    }
    # When it asks
    answer = await http.post(PATH, json=body(model="alone"), headers=headers)
    # Then the engine sees our own headers, our own key, and the trace
    assert answer.status_code == 200
    received = gateway.last()["headers"]
    assert set(received) == TO_UPSTREAM | {"traceparent", "tracestate"}
    assert received["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert received["host"] == gateway.first.url.removeprefix("http://")
    assert received["x-request-id"] == "mine-1"
    assert (received["traceparent"], received["tracestate"]) == (TRACE, "vendor=1")
    assert received["user-agent"].startswith("concord/")


@pytest.mark.parametrize(
    ("parent", "state"),
    [("junk", "a=1"), (TRACE, "é=1"), (TRACE, "x" * 5000), ("x" * 60_000, "")],
    ids=["no trace", "not ASCII", "too long", "60 KB"],
)
async def test_junk_in_trace_headers_does_not_go_on_and_does_no_harm(
    parent: str, state: str, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    headers = [(b"traceparent", parent.encode()), (b"tracestate", state.encode("latin-1"))]
    answer = await http.post(PATH, json=body(model="alone"), headers=headers)
    assert answer.status_code == 200
    expected = {"traceparent"} if parent == TRACE else set()
    assert set(gateway.last()["headers"]) == TO_UPSTREAM | expected


async def test_nothing_in_a_body_or_a_header_moves_a_request(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    # Given a listener of an attacker
    port = free_port()
    async with upstream(port, b"{}") as decoy:
        evil = f"http://127.0.0.1:{port}/v1"
        # When its address is put wherever an address might be taken from
        fields = {
            "api_base": evil,
            "base_url": evil,
            "api_key": "sk-of-the-client",
            "extra_headers": {"host": "evil", "x-evil": "1"},
            "metadata": {"api_base": evil, "api_key": "sk-of-the-client"},
            "litellm_params": {"api_base": evil},
            "_routing": {"base_url": evil},
        }
        headers = {"x-forwarded-host": f"127.0.0.1:{port}", "x-concord-endpoint": "pair:evil"}
        answer = await http.post(PATH, json=body(model="alone", **fields), headers=headers)
        # Then the engine gets it, with our key, and the listener nothing
        assert answer.status_code == 200
        received = gateway.last()
        assert received["headers"]["authorization"] == f"Bearer {UPSTREAM_KEY}"
        assert "x-evil" not in received["headers"]
        assert received["body"]["api_base"] == evil
        assert decoy.connections == 0


async def test_an_upstream_cannot_send_the_gateway_elsewhere(
    http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(status=307, headers={"location": f"{gateway.second.url}{PATH}"}, body="")
    answer = await http.post(PATH, json=body(model="alone"))
    assert answer.status_code == 502
    assert "location" not in answer.headers
    assert gateway.asked == (1, 0)


async def test_a_request_id_from_near_is_kept_and_malformed_ones_are_replaced(
    http: httpx.AsyncClient,
) -> None:
    for offered, is_kept in (
        ("mine-1.2_3", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("a b", False),
        ("a%0d%0aset-cookie:b", False),
    ):
        answer = await http.post(PATH, json=body(model="alone"), headers={"x-request-id": offered})
        assert (answer.headers["x-request-id"] == offered) is is_kept
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "lines",
    [
        b"x-request-id: a\rset-cookie: evil=1",
        b"x-request-id: a\x00b",
        b"x-request-id: a\r\n set-cookie: evil=1",
        b"content-length: 5\r\ncontent-length: 6",
        b"content-length: 5\r\ntransfer-encoding: chunked",
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity",
        b"content-length: -1",
        b"bad header: 1",
    ],
)
async def test_bent_headers_are_refused_or_cleaned_and_never_come_back(
    lines: bytes, gateway: Gateway
) -> None:
    request = b"POST %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n%s\r\n\r\n{}   \r\n\r\n"
    answer = await raw(gateway, request % (PATH.encode(), lines))
    status_line, _, rest = answer.partition(b"\r\n")
    assert status_line.split(b" ")[1] == b"400"
    assert b"set-cookie" not in rest.lower().partition(b"\r\n\r\n")[0]
    assert answer.count(b"HTTP/1.1") == 1
    assert gateway.asked == (0, 0)


async def test_an_absolute_address_in_the_request_line_leads_nowhere_else(
    gateway: Gateway,
) -> None:
    answer = await raw(
        gateway,
        b"GET http://evil.example/v1/models/alone HTTP/1.1\r\nhost: [\r\nconnection: close\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"evil" not in answer


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_answers_name_their_endpoint_and_attempts(
    streamed: bool, http: httpx.AsyncClient, gateway: Gateway
) -> None:
    gateway.fault(status=503, count=1)
    for attempts, engine in ((2, gateway.second), (1, gateway.first)):
        answer = await http.post(PATH, json=body(model="pair", stream=streamed))
        assert answer.headers["x-concord-attempts"] == str(attempts)
        assert answer.headers["x-concord-endpoint"] == f"pair:{engine.location}"
        assert b"_routing" not in answer.content


async def test_the_endpoint_is_not_named_where_that_is_switched_off(talkative: Gateway) -> None:
    async with talkative.http() as http:
        for streamed in (False, True):
            answer = await http.post(PATH, json=body(model="pair", stream=streamed))
            assert "x-concord-endpoint" not in answer.headers
            assert answer.headers["x-concord-attempts"] == "1"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_admin_pins_a_route_by_its_endpoint(
    streamed: bool, admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    # Given a pin to the second engine
    pin = {"x-route-pin": f"pair:{gateway.second.location}"}
    answer = await admin.post(PATH, json=body(model="pair", stream=streamed), headers=pin)
    assert answer.status_code == 200
    assert gateway.asked == (0, 1)
    # When it fails, nobody else is asked
    gateway.second.fault(status=503)
    answer = await admin.post(PATH, json=body(model="pair", stream=streamed), headers=pin)
    assert answer.status_code == 503
    assert b"_routing" not in answer.content
    assert gateway.asked == (0, 2)


async def test_a_pin_to_nothing_is_a_bad_request(
    admin: httpx.AsyncClient, gateway: Gateway
) -> None:
    answer = await admin.post(PATH, json=body(model="pair"), headers={"x-route-pin": "nobody"})
    assert answer.status_code == 400
    assert "nobody" in answer.json()["error"]["message"]
    assert gateway.asked == (0, 0)


async def test_a_pin_from_others_is_ignored_and_logged_without_its_value(guarded: Gateway) -> None:
    pin = {"x-route-pin": f"pair:{guarded.second.location}"}
    async with guarded.http(headers={"x-api-key": ALICE}) as http:
        answer = await http.post(PATH, json=body(model="pair"), headers=pin)
    assert answer.status_code == 200
    assert guarded.asked == (1, 0)
    log = guarded.cluster.replicas[0].text()
    assert '"route_pin_ignored"' in log
    assert pin["x-route-pin"] not in log.partition("route_pin_ignored")[2].partition("\n")[0]


async def test_no_key_is_ever_in_the_log(guarded: Gateway) -> None:
    async with guarded.http() as http:
        for key in (ALICE, ADMIN_KEY, "sk-wrong-of-the-tests"):
            headers = {"authorization": f"Bearer {key}"}
            await http.post(PATH, json=body("canary-prompt", model="pair"), headers=headers)
    log = guarded.cluster.replicas[0].text()
    assert '"caller":"alice"' in log
    assert not [
        word
        for word in (ALICE, ADMIN_KEY, UPSTREAM_KEY, "sk-wrong", "canary-prompt", "tok0")
        if word in log
    ]

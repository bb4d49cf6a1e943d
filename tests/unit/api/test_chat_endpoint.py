"""The order in which a chat request is looked at, and who it is taken for."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from gateway.config.schema import Server
from tests.fakes.builders import body, config, key, model, route
from tests.fakes.calls import Call
from tests.fakes.rig import ADMIN, Rig
from tests.fakes.upstreams import Upstreams, whole

ALICE = "sk-alice"


@pytest.fixture
def rig() -> Rig:
    settings = config(
        model(route("a"), route("b")),
        keys=[key(ALICE, "alice")],
        admin_key=ADMIN,
        server=Server(max_body_bytes=1000, trusted_proxies=("10.0.0.0/8",)),
    )
    return Rig(Upstreams(a=whole("from a"), b=whole("from b")), config=settings)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "concord")
    return lambda name: [r.fields for r in caplog.records if r.getMessage() == name]  # type: ignore[attr-defined]


def bearer(secret: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}", **more}


async def test_a_stranger_is_refused_before_its_body_is_read(rig: Rig) -> None:
    # Given a stranger whose body never ends
    call = Call(rig.app, b"{", headers=bearer("sk-wrong"), ends=False)
    # When it has sent a piece, it is already refused
    await call.finished()
    assert call.status == 401
    assert len(call._incoming) == 1


async def test_a_known_callers_body_over_the_cap_is_logged_as_its_own(rig: Rig, lines: Any) -> None:
    call = await Call(rig.app, b"x" * 1001, headers=bearer(ALICE)).finished()
    assert call.status == 413
    [line] = lines("request")
    assert (line["caller"], line["status"], line["error_type"]) == (
        "alice",
        413,
        "request_too_large",
    )


@pytest.mark.parametrize(
    ("secret", "endpoint"), [(ADMIN, "m:b"), (ALICE, "m:a")], ids=["admin", "other"]
)
async def test_only_an_admins_pin_counts(secret: str, endpoint: str, rig: Rig, lines: Any) -> None:
    call = Call(rig.app, body(), headers=bearer(secret, **{"x-route-pin": "b"}))
    await call.finished()
    await rig.settled()
    assert call.headers["x-concord-endpoint"] == endpoint
    assert [line["caller"] for line in lines("route_pin_ignored")] == (
        [] if secret == ADMIN else ["alice"]
    )


async def test_an_empty_pin_is_none(rig: Rig) -> None:
    call = Call(rig.app, body(), headers=bearer(ADMIN, **{"x-route-pin": ""}))
    await call.finished()
    await rig.settled()
    assert call.headers["x-concord-endpoint"] == "m:a"


@pytest.mark.parametrize(
    ("peer", "caller", "request_id"),
    [
        ("1.2.3.4", "ip:1.2.3.4", None),
        ("10.0.0.1", "ip:9.9.9.9", "mine"),
        ("127.0.0.1", "ip:127.0.0.1", "mine"),
    ],
    ids=["stranger", "proxy", "loopback"],
)
async def test_a_proxys_word_counts_and_a_strangers_does_not(
    peer: str, caller: str, request_id: str | None, lines: Any
) -> None:
    settings = config(server=Server(trusted_proxies=("10.0.0.0/8",)))
    rig = Rig(Upstreams(a=whole("x")), config=settings)
    headers = {"x-forwarded-for": "6.6.6.6, 9.9.9.9", "x-request-id": "mine"}
    call = await Call(rig.app, body(), headers=headers, peer=peer).finished()
    await rig.settled()
    [line] = lines("request")
    assert line["caller"] == caller
    assert (line["request_id"] == "mine") is (request_id == "mine")
    assert call.headers["x-request-id"] == line["request_id"]


async def test_a_forbidden_model_and_an_unknown_one_are_answered_alike() -> None:
    settings = config(model(id="secret", required_role="admin"))
    rig = Rig(Upstreams(), config=settings)
    bodies = set()
    for name in ("secret", "absent"):
        call = await Call(rig.app, body(model=name)).finished()
        assert call.status == 404
        bodies.add(call.body.replace(name.encode(), b"NAME"))
    assert len(bodies) == 1
    assert json.loads(bodies.pop())["error"]["code"] == "model_not_found"

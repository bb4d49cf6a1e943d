"""The surface lets admins in, reads strictly what they send, and logs what they change."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.admin.probes import Probes
from gateway.admin.reload import Reloaded
from gateway.admin.surface import Admin
from gateway.admission.secret import Secret
from gateway.auth.keys import Authenticator
from gateway.auth.made import MadeKeys
from gateway.config.keys import sha256
from gateway.config.problems import Problem
from gateway.dispatch.send import Dispatcher
from gateway.errors import StateUnavailable
from gateway.state.caller_store import CallerStore
from gateway.state.coordinator_store import CoordinatorStore
from gateway.state.gate_store import GateStore
from gateway.state.grants import Channels
from gateway.state.key_store import KeyStore
from gateway.state.offloads import OffloadLog
from gateway.state.policy import Policy
from gateway.state.pool_store import PoolStore
from tests.fakes.builders import config, key, model, route
from tests.fakes.surfaces import client_of
from tests.unit.admin.conftest import Embedded

KEYS = [key("sk-pro", "pro", role="internal"), key("sk-ops", "ops", role="admin")]
MODELS = (
    model(route("a", provider="acme"), route("b", provider="other")),
    model(route("a", model_id="m/large", provider="acme"), id="m/large", aliases=("large",)),
)
WRONG = Problem(severity="error", file="models.yaml", path="models[0]", message="bad", hint="so")
LEFT_OUT = Problem(severity="warning", file="models.yaml", path="models[1]", message="left out")
RELOADED = Reloaded(
    config_digest="new", changed=True, needs_restart=("state.lease_s",), problems=(LEFT_OUT,)
)
REFUSED = Reloaded(config_digest="old", problems=(WRONG,))
ROUTES = [
    ("GET", "/admin/status"),
    ("GET", "/admin/routing/explain?model=m"),
    ("GET", "/admin/routing/weights"),
    ("GET", "/admin/routing/weights/m"),
    ("PUT", "/admin/routing/weights/m/a"),
    ("DELETE", "/admin/routing/weights/m/a"),
    ("GET", "/admin/routing/providers"),
    ("GET", "/admin/routing/providers/acme"),
    ("PUT", "/admin/routing/providers/acme"),
    ("DELETE", "/admin/routing/providers/acme"),
    ("GET", "/admin/routing/offload-routes"),
    ("GET", "/admin/routing/offload-routes/m"),
    ("PUT", "/admin/routing/offload-routes/m"),
    ("DELETE", "/admin/routing/offload-routes/m"),
    ("GET", "/admin/routewise/model-settings?model_id=m"),
    ("PATCH", "/admin/routewise/model-settings/routewise_budget_alpha?model_id=m"),
    ("DELETE", "/admin/routewise/model-settings/routewise_budget_alpha?model_id=m"),
    ("GET", "/admin/routewise/settings"),
    ("PATCH", "/admin/routewise/settings"),
    ("GET", "/admin/routewise/calibration"),
    ("GET", "/admin/routewise/probes"),
    ("POST", "/admin/routewise/probes/run"),
    ("GET", "/admin/recent-requests/offloads?days=1"),
    ("GET", "/admin/upstream-concurrency"),
    ("DELETE", "/admin/routing/circuits/m/a"),
    ("GET", "/admin/routing/pins/m/alice"),
    ("DELETE", "/admin/routing/pins/m/alice"),
    ("GET", "/admin/keys"),
    ("POST", "/admin/keys"),
    ("GET", "/admin/keys/pro"),
    ("PATCH", "/admin/keys/pro"),
    ("DELETE", "/admin/keys/pro"),
    ("GET", "/admin/limits/pro"),
    ("GET", "/admin/provider-keys?provider=acme"),
    ("POST", "/admin/provider-keys"),
    ("DELETE", "/admin/provider-keys/acme/00000000"),
    ("POST", "/admin/provider-keys/acme/00000000/min-role"),
    ("POST", "/admin/provider-keys/min-role-env"),
    ("POST", "/admin/reload"),
]
REFUSED_HERE = [
    ("PATCH", "/admin/keys/pro"),
    ("DELETE", "/admin/keys/pro"),
    *(one for one in ROUTES if one[1].startswith("/admin/provider-keys") and one[0] != "GET"),
    *(one for one in ROUTES if "/model-settings" in one[1]),
    ("PATCH", "/admin/routewise/settings"),
    ("POST", "/admin/routewise/probes/run"),
]
"""Changes of what files have, of what is not there, or without a body."""


class Reloading:
    """A configuration that is read anew with the outcome that the test wants."""

    def __init__(self) -> None:
        self.outcome = RELOADED
        self.calls = 0

    async def __call__(self) -> Reloaded:
        self.calls += 1
        return self.outcome


@pytest.fixture
def reloading() -> Reloading:
    return Reloading()


@pytest.fixture
async def http(store: Embedded, reloading: Reloading) -> AsyncIterator[httpx.AsyncClient]:
    of = config(*MODELS, keys=KEYS)
    key_store = KeyStore(store.runner, store.keys)
    admin = Admin(
        of,
        Authenticator(of, MadeKeys(key_store)),
        store,
        key_store,
        CallerStore(store.runner, store.keys),
        pool_store=PoolStore(store.runner, store.keys),
        gate_store=GateStore(store.runner, store.keys, Channels(store.keys)),
        offload_log=OffloadLog(store.runner, store.keys),
        server=store.runner,
        policy=Policy(),
        secret=Secret("of the tests"),
        replica_id="r1",
        probes=Probes(of, store, CoordinatorStore(store.runner, store.keys), Dispatcher({})),
        reload=reloading,
    )
    async with client_of(admin.routes(), "sk-ops") as client:
        yield client


def error(answer: httpx.Response) -> dict[str, Any]:
    assert set(answer.json()) == {"error"}
    found: dict[str, Any] = answer.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


def test_every_route_is_listed_here(http: httpx.AsyncClient) -> None:
    served = {
        (method, route.path)
        for route in http._transport.app.routes  # type: ignore[attr-defined]
        for method in route.methods - {"HEAD"}
    }
    assert len(served) == len(ROUTES)


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    ("sent", "status"), [(None, 401), ("sk-wrong", 401), ("sk-pro", 403)], ids=str
)
async def test_others_than_admins_see_and_change_nothing(
    http: httpx.AsyncClient,
    store: Embedded,
    reloading: Reloading,
    method: str,
    path: str,
    sent: str | None,
    status: int,
) -> None:
    del http.headers["x-api-key"]
    headers = {"x-api-key": sent} if sent else {}
    body = {"weight": 5, "disabled": True} if method == "PUT" else None
    answer = await http.request(method, path, headers=headers, json=body)
    assert answer.status_code == status
    error(answer)
    assert await store.everything() == {}
    assert reloading.calls == 0


@pytest.mark.parametrize(
    ("method", "path"),
    [one for one in ROUTES if one[0] != "PUT" and one not in REFUSED_HERE],
)
async def test_admins_are_answered_in_json(http: httpx.AsyncClient, method: str, path: str) -> None:
    body = {} if (method, path) == ("POST", "/admin/keys") else None
    answer = await http.request(method, path, json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (
        200 if body is None else 201,
        "application/json",
    )
    assert isinstance(answer.json(), dict)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "truncated"),
        (b"[1]", "Expected `object`"),
        (b"{", "truncated"),
        (b"{}", "missing required field `weight`"),
        (b'{"wieght": 1}', "unknown field `wieght`"),
        (b'{"weight": 1, "epoch": 3}', "unknown field `epoch`"),
        (b'{"weight": "1"}', "`$.weight`"),
        (b'{"weight": true}', "`$.weight`"),
        (b'{"weight": null}', "`$.weight`"),
        (b'{"weight": NaN}', "malformed"),
        (b'{"weight": Infinity}', "malformed"),
        (b'{"weight": 1e999}', "out of range"),
        (b'{"weight": -0.5}', "must be 0, or from"),
        (b'{"weight": 1e300}', "must be 0, or from"),
        (b"\xff\xfe", "not as it must be"),
    ],
)
async def test_body_that_is_no_weight_is_refused_with_the_reason(
    http: httpx.AsyncClient, store: Embedded, body: bytes, told: str
) -> None:
    answer = await http.put("/admin/routing/weights/m/a", content=body)
    assert answer.status_code == 400
    assert told in error(answer)["message"]
    assert await store.everything() == {}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{}", "missing required field `disabled`"),
        (b'{"disabled": 1}', "`$.disabled`"),
        (b'{"disabled": true, "forced": true}', "unknown field `forced`"),
        (b'{"disabled": true, "force": "yes"}', "`$.force`"),
    ],
)
async def test_body_that_says_nothing_of_a_provider_is_refused_with_the_reason(
    http: httpx.AsyncClient, store: Embedded, body: bytes, told: str
) -> None:
    answer = await http.put("/admin/routing/providers/acme", content=body)
    assert answer.status_code == 400
    assert told in error(answer)["message"]
    assert await store.everything() == {}


async def test_huge_body_is_refused_unread(http: httpx.AsyncClient) -> None:
    answer = await http.put("/admin/routing/weights/m/a", content=b" " * 70_000)
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", "missing required field `model`"),
        ("model=", "missing required field `model`"),
        ("model=m&modell=m", "unknown field `modell`"),
        ("model=m&attempt=0", "`$.attempt`"),
        ("model=m&attempt=x", "`$.attempt`"),
        ("model=m&prompt_tokens=-1", "`$.prompt_tokens`"),
        ("model=m&modalities=text,imgae", "'imgae'"),
        ("model=m&request_id=a%20b", "No request has such an id"),
    ],
)
async def test_question_that_is_not_understood_is_refused_with_the_reason(
    http: httpx.AsyncClient, query: str, told: str
) -> None:
    answer = await http.get(f"/admin/routing/explain?{query}")
    assert answer.status_code == 400
    assert told in error(answer)["message"]


async def test_every_part_of_a_question_is_heard(http: httpx.AsyncClient) -> None:
    query = "model=m&caller=pro&session=&request_id=x&attempt=2&prompt_tokens=7&modalities=text"
    found = (await http.get(f"/admin/routing/explain?{query}")).json()
    assert (found["request_id"], found["attempt"], found["prompt_tokens"]) == ("x", 2, 7)
    assert found["replica"] == "r1"
    assert {one["reason"] for one in found["candidates"]} == {None, "already_attempted"}


@pytest.mark.parametrize("endpoint", ["a", "m/large:a"])
async def test_model_ids_may_hold_slashes(http: httpx.AsyncClient, endpoint: str) -> None:
    path = f"/admin/routing/weights/m/large/{endpoint}"
    answer = await http.put(path, json={"weight": 5})
    assert answer.json()["endpoint_id"] == "m/large:a"
    listed = (await http.get("/admin/routing/weights/m/large")).json()
    assert listed == {"model_id": "m/large", "routes": [answer.json()]}
    assert (await http.get("/admin/routing/weights/m")).json()["routes"][0]["epoch"] == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "weights/nope", 404),
        ("GET", "weights/large", 404),
        ("PUT", "weights/large/a", 404),
        ("PUT", "weights/nope/a", 404),
        ("PUT", "weights/m/nope", 400),
        ("DELETE", "weights/m/nope", 400),
        ("DELETE", "circuits/m/nope", 404),
        ("DELETE", "circuits/nope/a", 404),
        ("GET", "pins/nope/alice", 404),
        ("GET", "pins/m/alice?sesion=x", 400),
        ("GET", "pins/m/ip:unknown", 400),
        ("PUT", "providers/nope", 404),
        ("GET", "providers/nope", 404),
        ("GET", "explain?model=nope", 404),
        ("POST", "weights/m/a", 405),
        ("GET", "../keys/nobody", 404),
        ("PATCH", "../keys/nobody", 404),
        ("DELETE", "../keys/nobody", 404),
        ("PATCH", "../keys/pro", 409),
        ("DELETE", "../keys/pro", 409),
        ("DELETE", "../keys", 405),
    ],
)
async def test_what_is_not_there_is_told_in_the_usual_shape(
    http: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    body = {"disabled": True} if path.startswith("providers") else {"weight": 1}
    answer = await http.request(method, f"/admin/routing/{path}", json=body)
    assert answer.status_code == status
    error(answer)


async def test_pins_are_those_of_callers_named_by_a_network(http: httpx.AsyncClient) -> None:
    found = (await http.get("/admin/routing/pins/m/ip:2001:db8::/64?session=s")).json()
    assert (found["model"], found["caller"], found["session"]) == ("m", "ip:2001:db8::/64", "s")
    assert found["endpoint"] is None


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"id": "a", ', "truncated"),
        (b'{"rpm": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", "got `array`"),
        (b'{"rpm": ' + b'{"m":' * 9_000 + b"1" + b"}" * 9_001, "got `object`"),
        (b'{"rpm": "x"}', "rpm: must be"),
        (b'{"\\ud83d\\ude00": 1}', "unknown key"),
    ],
    ids=["empty", "a list", "cut off", "deep", "deep, too", "wrong", "odd letters"],
)
async def test_body_that_is_no_key_is_refused_with_the_reason(
    http: httpx.AsyncClient, store: Embedded, body: bytes, told: str
) -> None:
    answer = await http.post("/admin/keys", content=body)
    assert answer.status_code == 400
    assert told in error(answer)["message"]
    assert await store.everything() == {}


async def test_secret_is_shown_once_and_kept_by_no_cache(http: httpx.AsyncClient) -> None:
    made = await http.post("/admin/keys", json={"id": "org/a"})
    assert made.headers["cache-control"] == "no-store"
    secret = made.json()["key"]
    for path in ("/admin/keys", "/admin/keys/org/a", "/admin/keys/org%2Fa"):
        answer = await http.get(path)
        assert answer.status_code == 200
        assert "org/a" in answer.text
        assert secret not in answer.text
        assert sha256(secret) not in answer.text


async def test_made_admin_opens_the_surface(http: httpx.AsyncClient) -> None:
    made = (await http.post("/admin/keys", json={"role": "admin"})).json()
    answer = await http.get("/admin/keys", headers={"x-api-key": made["key"]})
    assert answer.status_code == 200


async def test_reload_answers_what_came_of_it(
    http: httpx.AsyncClient, reloading: Reloading
) -> None:
    answer = await http.post("/admin/reload")
    assert answer.status_code == 200
    assert answer.json() == {
        "replica": "r1",
        "config_digest": "new",
        "changed": True,
        "needs_restart": ["state.lease_s"],
        "warnings": [
            {
                "severity": "warning",
                "file": "models.yaml",
                "path": "models[1]",
                "message": "left out",
                "hint": "",
            }
        ],
    }
    assert reloading.calls == 1


async def test_reload_of_what_cannot_be_served_lists_the_problems(
    http: httpx.AsyncClient, reloading: Reloading
) -> None:
    reloading.outcome = REFUSED
    answer = await http.post("/admin/reload")
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid_config"
    assert answer.json()["replica"] == "r1"
    assert answer.json()["problems"] == [
        {
            "severity": "error",
            "file": "models.yaml",
            "path": "models[0]",
            "message": "bad",
            "hint": "so",
        }
    ]


async def test_changes_are_logged_with_the_admin_who_made_them(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="concord")
    await http.put("/admin/routing/weights/m/a", json={"weight": 5})
    await http.delete("/admin/routing/weights/m/a")
    await http.put("/admin/routing/providers/other", json={"disabled": True})
    await http.put("/admin/routing/providers/other", json={"disabled": False})
    await http.delete("/admin/routing/circuits/m/a")
    await http.delete("/admin/routing/pins/m/alice?session=private")
    made = (await http.post("/admin/keys", json={"role": "pro", "rpm": 5})).json()
    await http.patch(f"/admin/keys/{made['id']}", json={"user": "private", "rpm": None})
    await http.delete(f"/admin/keys/{made['id']}")
    await http.patch("/admin/keys/pro", json={"rpm": 1})
    await http.post("/admin/reload")
    await http.get("/admin/status")
    lines = [(record.getMessage(), record.fields) for record in caplog.records]  # type: ignore[attr-defined]
    assert [name for name, _ in lines] == [
        "weight_override_set",
        "weight_override_dropped",
        "provider_change",
        "provider_change",
        "circuit_reset",
        "pin_dropped",
        "key_made",
        "key_changed",
        "key_revoked",
        "reload_asked",
    ]
    assert {fields["admin"] for _, fields in lines} == {"ops"}
    assert lines[0][1] == {"admin": "ops", "endpoint": "m:a", "weight": 5.0}
    assert lines[2][1] == {"admin": "ops", "provider": "other", "disabled": True}
    assert lines[6][1] == {"admin": "ops", "key": made["id"], "role": "pro"}
    assert lines[7][1] == {"admin": "ops", "key": made["id"], "fields": ["rpm", "user"]}
    assert lines[8][1] == {"admin": "ops", "key": made["id"]}
    logged = json.dumps([fields for _, fields in lines])
    assert made["key"] not in logged
    assert sha256(made["key"]) not in logged
    assert "private" not in json.dumps([fields for _, fields in lines])


async def test_a_change_that_may_have_happened_is_logged_though_its_answer_is_lost(
    http: httpx.AsyncClient,
    store: Embedded,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, logger="concord")

    async def lost(*_: object, **__: object) -> None:
        raise StateUnavailable(may_have_happened=True)

    for name in ("override_weight", "reset_circuit", "drop_pin"):
        monkeypatch.setattr(store, name, lost)
    for method, path in (
        ("PUT", "weights/m/a"),
        ("DELETE", "weights/m/a"),
        ("DELETE", "circuits/m/a"),
        ("DELETE", "pins/m/alice"),
    ):
        body = {"weight": 5} if method == "PUT" else None
        answer = await http.request(method, f"/admin/routing/{path}", json=body)
        assert answer.status_code == 503
    at = {"admin": "ops", "model": "m", "is_sure": False}
    assert [(line.getMessage(), line.fields) for line in caplog.records] == [  # type: ignore[attr-defined]
        ("weight_override_set", {**at, "endpoint": "a", "weight": 5.0}),
        ("weight_override_dropped", {**at, "endpoint": "a"}),
        ("circuit_reset", {**at, "endpoint": "a"}),
        ("pin_dropped", {**at, "of": "alice"}),
    ]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("weights/m/a", {"GET", "HEAD", "PUT", "DELETE"}),
        ("providers/acme", {"GET", "HEAD", "PUT", "DELETE"}),
        ("pins/m/alice", {"GET", "HEAD", "DELETE"}),
        ("circuits/m/a", {"DELETE"}),
    ],
)
async def test_a_wrong_method_is_told_all_right_ones(
    http: httpx.AsyncClient, path: str, allowed: set[str]
) -> None:
    answer = await http.post(f"/admin/routing/{path}")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed


async def test_head_is_answered_as_get(http: httpx.AsyncClient) -> None:
    assert (await http.head("/admin/routing/weights/m")).status_code == 200
    assert (await http.head("/admin/routing/weights/nobody")).status_code == 404

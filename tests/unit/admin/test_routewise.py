"""RouteWise for operators: what they may change, which value holds then, and what was learned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.admin.calibration import calibrations
from gateway.admin.probes import Probes
from gateway.admin.routewise import RoutewiseSurface
from gateway.auth.keys import Authenticator
from gateway.auth.made import MadeKeys
from gateway.config.result import Config
from gateway.config.routewise_schema import RoutewiseParams
from gateway.config.routewise_settings import SETTINGS, in_force
from gateway.core.profile import Probed, Profile, Speed
from gateway.core.supply import QuotaState, Source, Supply
from gateway.dispatch.send import Dispatcher
from gateway.state.coordinator_store import CoordinatorStore
from gateway.state.key_store import KeyStore
from tests.fakes.builders import config, key, model, route
from tests.fakes.surfaces import client_of
from tests.unit.admin.conftest import Embedded

ALPHA = "routewise_budget_alpha"
KEYS = [key("sk-pro", "pro"), key("sk-ops", "ops", role="admin")]
QUOTA = Supply(
    kind="quota",
    pool="team",
    limit=500,
    source=Source(provider="acme", usage_label="daily", unit="requests"),
)
EPOCH = 2_000_000_000
FRAME = (
    b'data: {"id":"x","object":"chat.completion.chunk","model":"theirs","choices":'
    b'[{"index":0,"delta":{"content":"p"},"finish_reason":null}]}\n\n'
)


def serving(**given: Any) -> Config:
    """Models `m` and `n` of the strategy, and `other` of another one."""
    values = {
        "router": "routewise",
        "router_params": RoutewiseParams(**given),
        "router_params_given": frozenset(given),
    }
    return config(
        model(route("a"), route("b", supply=QUOTA), aliases=("alias",), **values),
        model(route("a", model_id="n"), id="n", **values),
        model(route("a", model_id="other"), id="other"),
        keys=KEYS,
    )


class Upstream(httpx.AsyncBaseTransport):
    """Answers streams at `a`, and refuses them elsewhere."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host.startswith("a."):
            headers = {"content-type": "text/event-stream"}
            return httpx.Response(200, content=FRAME + b"data: [DONE]\n\n", headers=headers)
        return httpx.Response(500, json={"error": {"message": "no"}})


class Operator:
    """Asks as an admin, unless told otherwise."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def ask(self, method: str, path: str, *, key: str = "sk-ops", **how: Any) -> Any:
        headers = {"authorization": f"Bearer {key}"}
        return await self.http.request(method, f"/admin/routewise/{path}", headers=headers, **how)

    async def value(self, of: str = "m", key: str = ALPHA) -> tuple[Any, str]:
        """A setting's value, and whose it is."""
        answer = await self.ask("GET", f"model-settings?model_id={of}")
        (item,) = [one for one in answer.json()["items"] if one["key"] == key]
        return item["value"], item["source"]


@pytest.fixture
def of() -> Config:
    return serving()


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
async def operator(store: Embedded, of: Config, upstream: Upstream) -> AsyncIterator[Operator]:
    authenticator = Authenticator(of, MadeKeys(KeyStore(store.runner, store.keys)))
    coordinator_store = CoordinatorStore(store.runner, store.keys)
    probes = Probes(of, store, coordinator_store, Dispatcher({"http1": upstream}))
    async with client_of(RoutewiseSurface(of, authenticator, store, probes).routes()) as http:
        yield Operator(http)


class TestASetting:
    async def test_is_told_with_its_bounds_and_its_default(self, operator: Operator) -> None:
        answer = await operator.ask("GET", "model-settings?model_id=m")

        told = answer.json()
        assert [one["key"] for one in told["items"]] == list(SETTINGS)
        assert told["items"][0] | {"description": ""} == {
            "key": ALPHA,
            "value": 0.75,
            "value_type": "float",
            "default_value": 0.75,
            "description": "",
            "min": 0,
            "max": 1,
            "source": "default",
        }

    async def test_holds_from_a_new_epoch_on_until_it_is_taken_back(
        self, operator: Operator, store: Embedded, of: Config
    ) -> None:
        path = f"model-settings/{ALPHA}?model_id=alias"
        changed = await operator.ask("PATCH", path, json={"value": 0.25})
        overrides = await store.overrides("m")
        kept = await operator.value()
        dropped = await operator.ask("DELETE", path)

        assert (changed.status_code, kept) == (200, (0.25, "override"))
        assert changed.json()["epoch"] == overrides.epoch > 0
        assert in_force(of.models["m"], overrides).budget_alpha == 0.25
        assert dropped.json()["epoch"] > overrides.epoch
        assert await operator.value() == (0.75, "default")
        assert await operator.value("n") == (0.75, "default")

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            (ALPHA, 1.5),
            (ALPHA, -0.1),
            (ALPHA, 10**400),
            (ALPHA, True),
            (ALPHA, "0.5"),
            (ALPHA, None),
            ("routewise_latency_min_samples", 1.5),
            ("routewise_latency_min_samples", -1),
            ("routewise_probe_enabled", 1),
            ("routewise_probe_interval_sec", 0),
        ],
    )
    async def test_of_another_type_or_out_of_bounds_is_refused(
        self, operator: Operator, name: str, value: object
    ) -> None:
        before = await operator.value(key=name)
        answer = await operator.ask(
            "PATCH", f"model-settings/{name}?model_id=m", json={"value": value}
        )

        assert answer.status_code == 400
        assert await operator.value(key=name) == before

    @pytest.mark.parametrize("method", ["PATCH", "DELETE"])
    async def test_that_there_is_not_is_not_found(self, operator: Operator, method: str) -> None:
        body = {"json": {"value": 1}} if method == "PATCH" else {}
        answer = await operator.ask(method, "model-settings/routewise_alpha?model_id=m", **body)

        assert answer.status_code == 404
        assert ALPHA in answer.json()["error"]["message"]

    @pytest.mark.parametrize(
        ("query", "status"), [("", 400), ("?model_id=x", 404), ("?model_id=other", 400)]
    )
    async def test_is_of_a_model_with_the_strategy(
        self, operator: Operator, query: str, status: int
    ) -> None:
        assert (await operator.ask("GET", f"model-settings{query}")).status_code == status

    async def test_switches_and_counts_keep_their_type(self, operator: Operator) -> None:
        for name, value in (
            ("routewise_probe_enabled", True),
            ("routewise_latency_min_samples", 3),
        ):
            path = f"model-settings/{name}?model_id=m"
            await operator.ask("PATCH", path, json={"value": value})

            found, _ = await operator.value(key=name)
            assert found == value
            assert type(found) is type(value)

    @pytest.mark.parametrize("path", ["model-settings?model_id=m", "settings", "calibration"])
    async def test_is_for_admins(self, operator: Operator, path: str) -> None:
        assert (await operator.ask("GET", path, key="sk-pro")).status_code == 403


class TestAFallback:
    async def test_holds_for_every_model_that_does_not_say(self, operator: Operator) -> None:
        answer = await operator.ask("PATCH", "settings", json={ALPHA: 0.1})

        assert answer.status_code == 200
        assert [await operator.value(id) for id in ("m", "n")] == [(0.1, "fallback")] * 2

    async def test_comes_after_an_override(self, operator: Operator) -> None:
        await operator.ask("PATCH", "settings", json={ALPHA: 0.1})
        await operator.ask("PATCH", f"model-settings/{ALPHA}?model_id=m", json={"value": 0.9})

        assert await operator.value("m") == (0.9, "override")

    async def test_is_taken_back_by_null(self, operator: Operator) -> None:
        await operator.ask("PATCH", "settings", json={ALPHA: 0.1})
        await operator.ask("PATCH", "settings", json={ALPHA: None})

        assert await operator.value() == (0.75, "default")

    async def test_that_cannot_be_changes_nothing(self, operator: Operator) -> None:
        wrong = {"routewise_latency_slo_sec": 1, ALPHA: 7}

        assert (await operator.ask("PATCH", "settings", json=wrong)).status_code == 400
        assert (await operator.ask("PATCH", "settings", json={"x": 7})).status_code == 404
        assert await operator.value(key="routewise_latency_slo_sec") == (3.0, "default")

    @pytest.mark.parametrize("of", [serving(budget_alpha=0.75)])
    async def test_comes_after_what_the_files_say(self, operator: Operator, of: Config) -> None:
        await operator.ask("PATCH", "settings", json={ALPHA: 0.1})

        assert await operator.value() == (0.75, "router_params")


class TestCalibration:
    async def test_says_what_is_missing(self, store: Embedded, of: Config) -> None:
        m, n = await calibrations(of, store)

        assert (m.model, m.profile_age_ms, m.is_old, m.envelope) == ("m", None, True, None)
        assert {at: one.source for at, one in m.endpoints.items()} == {
            "a": "fallback",
            "b": "fallback",
        }
        assert m.warnings() == [
            "what is learned of model m is missing: no coordinator runs?",
            "quota team of model m: nobody has reported it yet",
        ]
        assert n.quotas == {}

    async def test_says_what_was_learned_and_what_is_wrong_with_a_quota(
        self, store: Embedded, of: Config
    ) -> None:
        coordinator = CoordinatorStore(store.runner, store.keys)
        profile = Profile(
            speeds={"a": Speed(mean_ms=200, source="profile", count=12)},
            output=50.0,
            quotas={"team": QuotaState(used=7, limit=400)},
        )
        await coordinator.publish_profile(EPOCH, "m", profile, read=())
        await coordinator.publish(EPOCH, "quota:team", "state=known why=the%20limit%20differs")
        m, _ = await calibrations(of, store)

        assert m.profile_age_ms is not None
        assert not m.is_old
        assert (m.endpoints["a"].mean_ms, m.endpoints["a"].is_thin) == (200, False)
        assert m.output_tokens == 50
        assert (m.quotas["team"].used, m.quotas["team"].limit) == (7, 400)
        assert m.warnings() == ["quota team of model m: the limit differs"]

    async def test_is_served(self, operator: Operator) -> None:
        answer = await operator.ask("GET", "calibration")

        assert [one["model"] for one in answer.json()["models"]] == ["m", "n"]


class TestProbes:
    async def run(self, operator: Operator, **which: Any) -> list[dict[str, Any]]:
        answer = await operator.ask("POST", "probes/run", json=which)
        assert answer.status_code == 200
        results: list[dict[str, Any]] = answer.json()["results"]
        return results

    async def test_are_taken_of_every_endpoint_and_kept(
        self, operator: Operator, store: Embedded
    ) -> None:
        results = await self.run(operator)

        assert [(one["endpoint_id"], one["ok"], one["error"]) for one in results] == [
            ("m:a", True, None),
            ("m:b", False, "http_500"),
            ("n:a", True, None),
        ]
        kept = await store.redis("XLEN", store.keys.model("m")["outcomes"])
        assert (kept, results[0]["ttft_ms"] > 0, results[1]["ttft_ms"]) == (2, True, None)

    @pytest.mark.parametrize(
        ("which", "endpoints"),
        [
            ({"model_id": "alias"}, ["m:a", "m:b"]),
            ({"endpoint_id": "n:a"}, ["n:a"]),
            ({"model_id": "n", "endpoint_id": "m:a"}, []),
            ({"model_id": "other"}, []),
            ({"idle_only": True}, ["m:b", "n:a"]),
        ],
    )
    async def test_are_taken_of_those_that_are_meant(
        self, operator: Operator, store: Embedded, which: dict[str, Any], endpoints: list[str]
    ) -> None:
        profile = Profile(speeds={"a": Speed(mean_ms=200, source="profile", count=1)})
        coordinator = CoordinatorStore(store.runner, store.keys)
        await coordinator.publish_profile(EPOCH, "m", profile, read=())

        assert [one["endpoint_id"] for one in await self.run(operator, **which)] == endpoints

    async def test_of_a_model_that_there_is_not_are_refused(self, operator: Operator) -> None:
        answer = await operator.ask("POST", "probes/run", json={"model_id": "x"})

        assert answer.status_code == 404

    async def test_that_were_learned_from_are_listed(
        self, operator: Operator, store: Embedded
    ) -> None:
        profile = Profile(probes={"a": Probed(at_ms=7, is_ok=True, ttft_ms=90)})
        coordinator = CoordinatorStore(store.runner, store.keys)
        await coordinator.publish_profile(EPOCH, "m", profile, read=())
        answer = await operator.ask("GET", "probes")

        assert answer.json()["probes"] == [
            {"model_id": "m", "endpoint_id": "m:a", "at_ms": 7, "ok": True, "ttft_ms": 90}
        ]

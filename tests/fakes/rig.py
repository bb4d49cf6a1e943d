"""A replica's chat endpoint without network and Redis.

The endpoint, pipeline, admission and dispatcher are the real ones; the store is in memory and the
upstreams are scripted.
"""

from __future__ import annotations

from typing import Any

from gateway.admission.admit import Admission
from gateway.admission.callers import CallerLimits
from gateway.admission.claims import Claims
from gateway.admission.offloads import Offloads
from gateway.admission.overrides import KnownOverrides
from gateway.admission.profiles import KnownProfiles
from gateway.admission.reservations import Reservations
from gateway.admission.secret import Secret
from gateway.admission.settlement import Settlement
from gateway.api.lifecycle import Lifecycle
from gateway.api.openai import ChatCompletions
from gateway.auth.keys import Authenticator
from gateway.config.result import Config
from gateway.config.schema import Prefill, Server
from gateway.core.offload import Offload
from gateway.core.profile import NO_PROFILE, Profile
from gateway.core.route import Model, Route
from gateway.dispatch.gating import Gates
from gateway.dispatch.send import Dispatcher
from gateway.dispatch.traced import TracedTransport
from gateway.pipeline import Pipeline
from gateway.routing.candidates import Planner
from gateway.routing.prompts import Prompts
from gateway.state.offloads import Offloaded, OffloadLog
from gateway.state.policy import Policy
from gateway.telemetry.tracing import Tracer
from tests.fakes import builders
from tests.fakes.caller_store import MemoryCallerStore
from tests.fakes.calls import Call
from tests.fakes.keys import no_made_keys
from tests.fakes.store import MemoryStore
from tests.fakes.upstreams import Upstreams

ADMIN = "sk-admin"
POLICY = Policy()


def admission_over(
    store: MemoryStore,
    claims: Claims,
    settlement: Settlement,
    *,
    policy: Policy = POLICY,
    abort_grace_ms: int = 0,
    profile: Profile = NO_PROFILE,
) -> Admission:
    """The admission of a replica over a store in memory, to which all models have one profile."""
    overrides = KnownOverrides(store)  # type: ignore[arg-type]
    return Admission(
        store,  # type: ignore[arg-type]
        claims,
        settlement,
        overrides,
        policy,
        profiles=OneProfile(profile),
        lease_ms=1000,
        abort_grace_ms=abort_grace_ms,
    )


class OneProfile(KnownProfiles):
    """Known of every model."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def of(self, model: Model) -> Profile:
        """That one."""
        return self._profile


class MemoryLog(OffloadLog):
    """Of requests that went to the offload route."""

    def __init__(self) -> None:
        self.noted: list[Offloaded] = []

    async def note(self, offloaded: Offloaded) -> None:
        """Keep one."""
        self.noted.append(offloaded)


class Rig:
    """One endpoint over the model `m` with these routes."""

    def __init__(
        self,
        upstreams: Upstreams,
        *routes: Route,
        sse_keepalive_s: float = 15.0,
        config: Config | None = None,
        tracer: Tracer | None = None,
        gates: Gates | None = None,
        offload: Offload | None = None,
        profile: Profile = NO_PROFILE,
    ) -> None:
        self.upstreams = upstreams
        self.store = MemoryStore()
        self.claims = Claims("r1")
        self.settlement = Settlement(
            self.store,  # type: ignore[arg-type]
            self.claims,
            lease_ms=1000,
        )
        self.admission = admission_over(self.store, self.claims, self.settlement, profile=profile)
        self.caller_store = MemoryCallerStore()
        self.reservations = Reservations(
            self.caller_store,  # type: ignore[arg-type]
            "r1",
            lease_ms=1000,
        )
        self.callers = CallerLimits(
            self.caller_store,  # type: ignore[arg-type]
            self.reservations,
            self.settlement,
            window_ms=60_000,
        )
        self.config = config or builders.config(
            builders.model(*routes, offload=offload),
            admin_key=ADMIN,
            server=Server(sse_keepalive_s=sse_keepalive_s),
        )
        self.lifecycle = Lifecycle()
        self.offload_log = MemoryLog()
        tracer = tracer or Tracer()
        provider = tracer.provider
        traced = {"http1": TracedTransport(upstreams, provider)} if provider else {}
        self.pipeline = Pipeline(
            self.config,
            Planner(),
            Prompts(Secret("secret"), POLICY, Prefill()),
            self.admission,
            Dispatcher({"http1": upstreams}, traced, gates=gates),
            callers=self.callers,
            offloads=Offloads(self.offload_log, self.settlement.deliver),
        )
        self.app = ChatCompletions(
            self.pipeline,
            Authenticator(self.config, no_made_keys()),
            self.lifecycle,
            self.config.settings,
            tracer,
        )

    def call(self, *, headers: dict[str, str] | None = None, **fields: Any) -> Call:
        """Start a request."""
        return Call(self.app, builders.body(**fields), headers=headers)

    async def ask(self, **fields: Any) -> Call:
        """Make a request and wait for its end, and for the store to know of it."""
        call = await self.call(**fields).finished()
        await self.settled()
        return call

    async def settled(self) -> None:
        """Wait until the store knows all."""
        await self.settlement.drain(10)

    def assert_all_ended_once(self) -> None:
        """No claim stands, here or in the store, and none was ended twice."""
        assert not self.store.standing
        assert not len(self.claims)
        self.caller_store.assert_all_ended_once()
        assert not len(self.reservations)
        assert all(times == 1 for times in self.store.ended.values()), self.store.ended
        assert self.upstreams.open == 0

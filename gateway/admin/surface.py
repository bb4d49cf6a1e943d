"""`/admin`: the operator surface over HTTP, for admins alone.

    GET    /admin/status                                 the whole cluster
    GET    /admin/routing/explain?model=                 why a request goes where it goes
    GET    /admin/routing/weights[/{model}]              weights: of the files, and in force
    PUT    /admin/routing/weights/{model}/{endpoint}     {"weight": x}; DELETE lets the files' hold
    GET    /admin/routing/providers[/{label}]            labels in and out of service
    PUT    /admin/routing/providers/{label}              {"disabled": bool, "force": false}; DELETE
    GET    /admin/routing/offload-routes[/{model}]       where requests go that wait too long
    PUT    /admin/routing/offload-routes/{model}         {"route_id", "wait_seconds", …}; DELETE
    GET    /admin/routewise/model-settings?model_id=     what may be changed of its strategy
    PATCH  /admin/routewise/model-settings/{key}?model_id= {"value": x}; DELETE
    GET    /admin/routewise/settings                     the same for all; PATCH {key: x}
    GET    /admin/routewise/calibration                  what has been learned of models
    GET    /admin/routewise/probes                       the last sample of each endpoint
    POST   /admin/routewise/probes/run                   takes some now, {"model_id", "endpoint_id",
                                                         "idle_only"}
    GET    /admin/recent-requests/offloads?days=1        the last that went there
    GET    /admin/upstream-concurrency                   how many may be under way per account
    DELETE /admin/routing/circuits/{model}/{endpoint}    an endpoint counts as healthy again
    GET    /admin/routing/pins/{model}/{caller}?session= where a caller stays; DELETE lets it go
    GET    /admin/keys[/{id}]                            callers' keys, of keys.yaml and made
    POST   /admin/keys                                   makes one, as an entry of keys.yaml says
    PATCH  /admin/keys/{id}                              what is given changes; DELETE revokes
    GET    /admin/limits/{id}                            what a key's requests have taken of limits
    GET    /admin/provider-keys?provider=                upstream keys, by their digests
    POST   /admin/provider-keys                          adds one, kept encrypted
    DELETE /admin/provider-keys/{id}                     forgets it
    POST   /admin/provider-keys/{id}/min-role            {"min_role": "pro"} whom it is kept for
    POST   /admin/provider-keys/min-role-env             the same of a configured one, by its digest
    POST   /admin/reload                                 this replica reads its files anew

Ids of models may hold slashes: the longest one that fits is meant. An endpoint is a location or a
full id. Every change is logged with the admin who made it.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin import door, targets
from gateway.admin.circuits import CircuitReset, reset_circuit
from gateway.admin.explain import Explainer, Question
from gateway.admin.explanation import Explanation
from gateway.admin.gates import GateReader
from gateway.admin.keys import AllKeys, Asked, CallerKeys, Revoked, ShownKey
from gateway.admin.limits import CallerUse, CallerUses
from gateway.admin.offload import OffloadRoutes
from gateway.admin.offload_surface import OffloadSurface
from gateway.admin.pins import Pin, Pins, SessionQuery
from gateway.admin.probes import Probes
from gateway.admin.provider_keys import (
    AllProviderKeys,
    KeyTier,
    NewKey,
    ProviderKey,
    RemovedKey,
    Tier,
    UpstreamKeys,
)
from gateway.admin.providers import AllProviders, Provider, ProviderChange, Providers
from gateway.admin.reload import Reload
from gateway.admin.routewise import RoutewiseSurface
from gateway.admin.serving import Surface, as_json
from gateway.admin.status import Status, StatusReader
from gateway.admin.weights import (
    AllWeights,
    ModelWeights,
    RouteWeight,
    RouteWeights,
    WeightChange,
)
from gateway.admission.secret import Secret
from gateway.auth.keys import Authenticator
from gateway.config.result import Config
from gateway.core.caller import Caller
from gateway.errors import InvalidRequest
from gateway.state.caller_store import CallerStore
from gateway.state.gate_store import GateStore
from gateway.state.key_store import KeyStore
from gateway.state.look import Server
from gateway.state.offloads import OffloadLog
from gateway.state.policy import Policy
from gateway.state.pool_store import PoolStore
from gateway.state.store import Store

WEIGHTS = "/admin/routing/weights"
PROVIDERS = "/admin/routing/providers"
KEYS = "/admin/keys"
PROVIDER_KEYS = "/admin/provider-keys"


class Admin(Surface):
    """Serves the surface under one configuration."""

    def __init__(
        self,
        config: Config,
        authenticator: Authenticator,
        store: Store,
        key_store: KeyStore,
        caller_store: CallerStore,
        *,
        pool_store: PoolStore,
        gate_store: GateStore,
        offload_log: OffloadLog,
        server: Server,
        policy: Policy,
        secret: Secret,
        replica_id: str,
        probes: Probes,
        reload: Reload,
    ) -> None:
        self._config = config
        super().__init__(authenticator)
        self._store = store
        gates = GateReader(config, gate_store, pool_store, secret)
        self._status = StatusReader(
            config, store, server, gates, pool_store=pool_store, secret=secret
        )
        routes = OffloadRoutes(config, store, offload_log)
        self._offloads = OffloadSurface(config, authenticator, routes, gates)
        self._routewise = RoutewiseSurface(config, authenticator, store, probes)
        self._weights = RouteWeights(config, store)
        self._providers = Providers(config, store)
        self._pins = Pins(store, secret)
        self._keys = CallerKeys(config, key_store)
        self._explainer = Explainer(
            config, store, policy, secret, self._keys, replica_id=replica_id
        )
        self._upstream_keys = UpstreamKeys(config, pool_store, secret)
        self._uses = CallerUses(config, self._keys, caller_store)
        self._reload = reload
        self._replica_id = replica_id

    def routes(self) -> list[Route]:
        """Where all this is served."""
        one_weight, one_label = f"{WEIGHTS}/{{path:path}}", f"{PROVIDERS}/{{label:path}}"
        pins, one_key = "/admin/routing/pins/{path:path}", f"{KEYS}/{{id:path}}"
        return [
            self._route("/admin/status", GET=self.status),
            self._route("/admin/routing/explain", GET=self.explain),
            self._route(WEIGHTS, GET=self.weights),
            self._route(
                one_weight, GET=self.weights_of, PUT=self.set_weight, DELETE=self.drop_weight
            ),
            self._route(PROVIDERS, GET=self.providers),
            self._route(
                one_label,
                GET=self.provider,
                PUT=self.change_provider,
                DELETE=self.enable_provider,
            ),
            *self._offloads.routes(),
            *self._routewise.routes(),
            self._route("/admin/routing/circuits/{path:path}", DELETE=self.reset_circuit),
            self._route(pins, GET=self.pin, DELETE=self.drop_pin),
            self._route(KEYS, GET=self.keys, POST=self.make_key),
            self._route(one_key, GET=self.key, PATCH=self.change_key, DELETE=self.revoke_key),
            self._route("/admin/limits/{id:path}", GET=self.limits),
            *self._upstream_key_routes(),
            self._route("/admin/reload", POST=self.reload),
        ]

    def _upstream_key_routes(self) -> list[Route]:
        one = f"{PROVIDER_KEYS}/{{id:path}}"
        return [
            self._route(PROVIDER_KEYS, GET=self.provider_keys, POST=self.add_provider_key),
            self._route(f"{PROVIDER_KEYS}/min-role-env", POST=self.keep_provider_key),
            self._route(f"{one}/min-role", POST=self.keep_added_key),
            self._route(one, DELETE=self.remove_provider_key),
        ]

    async def status(self, request: Request, caller: Caller) -> Status:
        """Everything at once."""
        return await self._status.read()

    async def explain(self, request: Request, caller: Caller) -> Explanation:
        """Why a request goes where it goes."""
        values: dict[str, object] = {
            name: text for name, text in request.query_params.items() if text
        }
        if "modalities" in values:
            values["modalities"] = str(values["modalities"]).split(",")
        return await self._explainer.explain(door.read_query(values, Question))

    async def weights(self, request: Request, caller: Caller) -> AllWeights:
        """Every route's weights."""
        return await self._weights.all()

    async def weights_of(self, request: Request, caller: Caller) -> ModelWeights:
        """The weights of one model's routes."""
        model = targets.model_of(self._config, request.path_params["path"])
        return await self._weights.of(model)

    async def set_weight(self, request: Request, caller: Caller) -> RouteWeight:
        """Override a route's weight."""
        model, endpoint = targets.split(self._config, request.path_params["path"])
        change = await door.read_json(request, WeightChange)
        fields = {"model": model.id, "endpoint": endpoint, "weight": change.weight}
        with self._noted_when_unsure("weight_override_set", caller, **fields):
            found = await self._weights.set(model, endpoint, change.weight)
        self._note("weight_override_set", caller, endpoint=found.endpoint_id, weight=change.weight)
        return found

    async def drop_weight(self, request: Request, caller: Caller) -> RouteWeight:
        """Let a route's configured weight hold again."""
        model, endpoint = targets.split(self._config, request.path_params["path"])
        fields = {"model": model.id, "endpoint": endpoint}
        with self._noted_when_unsure("weight_override_dropped", caller, **fields):
            found = await self._weights.drop(model, endpoint)
        self._note("weight_override_dropped", caller, endpoint=found.endpoint_id)
        return found

    async def providers(self, request: Request, caller: Caller) -> AllProviders:
        """Every label's standing."""
        return await self._providers.all()

    async def provider(self, request: Request, caller: Caller) -> Provider:
        """One label's standing."""
        return await self._providers.of(request.path_params["label"])

    async def change_provider(self, request: Request, caller: Caller) -> Provider:
        """Disable or enable a label."""
        label = request.path_params["label"]
        change = await door.read_json(request, ProviderChange)
        fields = {"provider": label, "disabled": change.disabled}
        with self._noted_when_unsure("provider_change", caller, **fields):
            found = await self._providers.change(label, change)
        self._note("provider_change", caller, **fields)
        return found

    async def enable_provider(self, request: Request, caller: Caller) -> Provider:
        """Enable a label."""
        label = request.path_params["label"]
        fields = {"provider": label, "disabled": False}
        with self._noted_when_unsure("provider_change", caller, **fields):
            found = await self._providers.enable(label)
        self._note("provider_change", caller, **fields)
        return found

    async def reset_circuit(self, request: Request, caller: Caller) -> CircuitReset:
        """Forget an endpoint's failures."""
        model, endpoint = targets.split(self._config, request.path_params["path"])
        fields = {"model": model.id, "endpoint": endpoint}
        with self._noted_when_unsure("circuit_reset", caller, **fields):
            found = await reset_circuit(self._store, model, endpoint)
        self._note("circuit_reset", caller, endpoint=found.endpoint, was=found.was)
        return found

    async def pin(self, request: Request, caller: Caller) -> Pin:
        """Where a caller stays."""
        model, whose = targets.split(self._config, request.path_params["path"])
        query = door.read_query(dict(request.query_params), SessionQuery)
        return await self._pins.of(model, whose, query.session or None)

    async def drop_pin(self, request: Request, caller: Caller) -> Pin:
        """Let a caller go."""
        model, whose = targets.split(self._config, request.path_params["path"])
        query = door.read_query(dict(request.query_params), SessionQuery)
        with self._noted_when_unsure("pin_dropped", caller, model=model.id, of=whose):
            found = await self._pins.drop(model, whose, query.session or None)
        self._note("pin_dropped", caller, model=model.id, of=whose)
        return found

    async def keys(self, request: Request, caller: Caller) -> AllKeys:
        """Every key, without its secret."""
        return await self._keys.all()

    async def key(self, request: Request, caller: Caller) -> ShownKey:
        """One key, without its secret."""
        return await self._keys.of(request.path_params["id"])

    async def make_key(self, request: Request, caller: Caller) -> Response:
        """Make a key, and show its secret this once."""
        asked = await door.read_json(request, Asked)
        with self._noted_when_unsure("key_made", caller):
            made = await self._keys.make(asked, by=caller.id)
        self._note("key_made", caller, key=made.id, role=made.role)
        response = as_json(made, status=201)
        response.headers["cache-control"] = "no-store"
        return response

    async def change_key(self, request: Request, caller: Caller) -> ShownKey:
        """Change what the body gives of a key."""
        key_id = request.path_params["id"]
        changes = await door.read_json(request, Asked)
        with self._noted_when_unsure("key_changed", caller, key=key_id):
            changed = await self._keys.change(key_id, changes)
        self._note("key_changed", caller, key=key_id, fields=sorted(changes))
        return changed

    async def revoke_key(self, request: Request, caller: Caller) -> Revoked:
        """Take a key away."""
        key_id = request.path_params["id"]
        with self._noted_when_unsure("key_revoked", caller, key=key_id):
            revoked = await self._keys.revoke(key_id)
        self._note("key_revoked", caller, key=key_id)
        return revoked

    async def limits(self, request: Request, caller: Caller) -> CallerUse:
        """How much of a key's limits is taken."""
        return await self._uses.of(request.path_params["id"])

    async def provider_keys(self, request: Request, caller: Caller) -> AllProviderKeys:
        """Every upstream key, without itself."""
        return await self._upstream_keys.all(request.query_params.get("provider"))

    async def add_provider_key(self, request: Request, caller: Caller) -> Response:
        """Add an upstream key."""
        asked = await door.read_json(request, NewKey)
        fields = {"provider": asked.provider, "min_role": asked.min_role}
        with self._noted_when_unsure("upstream_key_added", caller, **fields):
            added = await self._upstream_keys.add(asked, by=caller.id)
        self._note("upstream_key_added", caller, **fields, id=added.id, key=added.key)
        return as_json(added, status=201)

    async def keep_added_key(self, request: Request, caller: Caller) -> ProviderKey:
        """Say whom an added upstream key is kept for."""
        tier = await door.read_json(request, Tier)
        fields = {"id": request.path_params["id"], "min_role": tier.min_role}
        with self._noted_when_unsure("upstream_key_kept", caller, **fields):
            kept = await self._upstream_keys.keep_added(fields["id"], tier)
        self._note("upstream_key_kept", caller, **fields, key=kept.key)
        return kept

    async def keep_provider_key(self, request: Request, caller: Caller) -> ProviderKey:
        """Say whom any upstream key is kept for, by its digest."""
        asked = await door.read_json(request, KeyTier)
        fields = {"provider": asked.provider, "key": asked.key, "min_role": asked.min_role}
        with self._noted_when_unsure("upstream_key_kept", caller, **fields):
            kept = await self._upstream_keys.keep(asked)
        self._note("upstream_key_kept", caller, **fields)
        return kept

    async def remove_provider_key(self, request: Request, caller: Caller) -> RemovedKey:
        """Forget an added upstream key."""
        key_id = request.path_params["id"]
        with self._noted_when_unsure("upstream_key_removed", caller, id=key_id):
            removed = await self._upstream_keys.remove(key_id)
        self._note("upstream_key_removed", caller, id=key_id)
        return removed

    async def reload(self, request: Request, caller: Caller) -> Response | dict[str, object]:
        """Read the configuration anew; the old one stays when the new one is wrong."""
        self._note("reload_asked", caller)
        reloaded = await self._reload()
        if not reloaded.is_refused:
            return {
                "replica": self._replica_id,
                "config_digest": reloaded.config_digest,
                "changed": reloaded.changed,
                "needs_restart": reloaded.needs_restart,
                "warnings": reloaded.problems,
            }
        error = {
            "message": "The configuration cannot be served; the one before it stays in force.",
            "type": InvalidRequest.type,
            "param": None,
            "code": "invalid_config",
        }
        refusal = {"error": error, "replica": self._replica_id, "problems": reloaded.problems}
        return as_json(refusal, status=422)

"""The part of the surface about RouteWise: what of it may be changed at run time, and what it has
learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs
from starlette.requests import Request
from starlette.routing import Route

from gateway.admin import door, targets
from gateway.admin.calibration import Calibration, calibrations
from gateway.admin.probes import AllProbes, Probes, ProbesRun, WhichProbes
from gateway.admin.serving import Surface
from gateway.auth.keys import Authenticator
from gateway.config.result import Config
from gateway.config.routewise_schema import RoutewiseParams
from gateway.config.routewise_settings import SETTINGS, Setting, in_force
from gateway.core.caller import Caller
from gateway.core.overrides import Overrides
from gateway.core.route import Model
from gateway.errors import InvalidRequest, NotFound
from gateway.state.store import Store

MODEL_SETTINGS = "/admin/routewise/model-settings"
FALLBACKS = "/admin/routewise/settings"
PROBES = "/admin/routewise/probes"
Value = float | int | bool


class ModelQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model is meant: an id or an alias."""

    model_id: str


class SettingChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body that sets a value."""

    value: Value


class SettingTold(Struct, frozen=True, kw_only=True):
    """A setting, and the value in force."""

    key: str
    value: Value
    value_type: str
    default_value: Value
    description: str
    min: float
    max: float
    source: str
    """Whose value it is: `override`, `router_params`, `fallback` or `default`."""


class SettingsTold(Struct, frozen=True, kw_only=True):
    """All of them: of a model, or those that stand in for all."""

    model_id: str | None
    epoch: int | None
    items: Sequence[SettingTold]


class AllCalibrations(Struct, frozen=True, kw_only=True):
    """What has been learned."""

    models: Sequence[Calibration]


class RoutewiseSurface(Surface):
    """Serves it under one configuration."""

    def __init__(
        self, config: Config, authenticator: Authenticator, store: Store, probes: Probes
    ) -> None:
        super().__init__(authenticator)
        self._config = config
        self._store = store
        self._probes = probes

    def routes(self) -> list[Route]:
        """Where all this is served."""
        return [
            self._route(MODEL_SETTINGS, GET=self.settings),
            self._route(f"{MODEL_SETTINGS}/{{key}}", PATCH=self.change, DELETE=self.drop),
            self._route(FALLBACKS, GET=self.fallbacks, PATCH=self.change_fallbacks),
            self._route("/admin/routewise/calibration", GET=self.calibration),
            self._route(PROBES, GET=self.probes),
            self._route(f"{PROBES}/run", POST=self.probe),
        ]

    async def settings(self, request: Request, caller: Caller) -> SettingsTold:
        """Those of a model."""
        return await self._told(self._model(request))

    async def change(self, request: Request, caller: Caller) -> SettingsTold:
        """Set one for a model."""
        model, key = self._model(request), request.path_params["key"]
        kept = _read(key, (await door.read_json(request, SettingChange)).value)
        return await self._set(model, key, kept, caller)

    async def drop(self, request: Request, caller: Caller) -> SettingsTold:
        """Let what one was before hold again."""
        key = request.path_params["key"]
        _setting(key)
        return await self._set(self._model(request), key, None, caller)

    async def fallbacks(self, request: Request, caller: Caller) -> SettingsTold:
        """Those that hold where neither an operator nor a model's files say otherwise."""
        models = self._models()
        overrides = await self._store.overrides(models[0].id) if models else Overrides()
        items = [_fallback(key, setting, overrides.fallbacks) for key, setting in SETTINGS.items()]
        return SettingsTold(model_id=None, epoch=None, items=items)

    async def change_fallbacks(self, request: Request, caller: Caller) -> SettingsTold:
        """Set some of them, for every model that the strategy serves now; null takes one back."""
        changes = await door.read_json(request, dict[str, Value | None])
        kept = {key: None if value is None else _read(key, value) for key, value in changes.items()}
        for key in kept:
            _setting(key)
        for model in self._models():
            for key, value in kept.items():
                await self._store.override_setting(model.id, key, value, is_fallback=True)
        self._note("routewise_fallbacks_changed", caller, **changes)
        return await self.fallbacks(request, caller)

    async def calibration(self, request: Request, caller: Caller) -> AllCalibrations:
        """What has been learned of every model."""
        return AllCalibrations(models=await calibrations(self._config, self._store))

    async def probes(self, request: Request, caller: Caller) -> AllProbes:
        """The last one of each endpoint."""
        return AllProbes(probes=await self._probes.last())

    async def probe(self, request: Request, caller: Caller) -> ProbesRun:
        """Probe endpoints now."""
        wanted = await door.read_json(request, WhichProbes)
        if wanted.model_id is not None:
            targets.any_model(self._config, wanted.model_id)
        self._note("routewise_probes_run", caller, **structs.asdict(wanted))
        return ProbesRun(results=await self._probes.run(wanted))

    async def _set(
        self, model: Model, key: str, kept: float | None, caller: Caller
    ) -> SettingsTold:
        fields = {"model": model.id, "key": key, "value": kept}
        with self._noted_when_unsure("routewise_setting_changed", caller, **fields):
            await self._store.override_setting(model.id, key, kept)
        self._note("routewise_setting_changed", caller, **fields)
        return await self._told(model)

    async def _told(self, model: Model) -> SettingsTold:
        overrides = await self._store.overrides(model.id)
        params = in_force(model, overrides)
        items = [
            _told(key, setting, getattr(params, setting.param), _source(model, overrides, key))
            for key, setting in SETTINGS.items()
        ]
        return SettingsTold(model_id=model.id, epoch=overrides.epoch, items=items)

    def _models(self) -> list[Model]:
        models = self._config.models.values()
        return [one for one in models if isinstance(one.router_params, RoutewiseParams)]

    def _model(self, request: Request) -> Model:
        """The model that is meant. Raises `NoSuchTarget` and `InvalidRequest`."""
        query = door.read_query(dict(request.query_params), ModelQuery)
        model = targets.any_model(self._config, query.model_id)
        if not isinstance(model.router_params, RoutewiseParams):
            raise InvalidRequest(
                f"The router of model '{model.id}' is {model.router}, not routewise.",
                param="model_id",
            )
        return model


def _setting(key: str) -> Setting:
    if key not in SETTINGS:
        raise NotFound(f"There is no setting '{key}'.{targets.near(key, SETTINGS)}", param="key")
    return SETTINGS[key]


def _read(key: str, value: Value) -> float:
    """A value that may be kept. Raises `InvalidRequest` and `NotFound`."""
    setting = _setting(key)
    kept = setting.read(value)
    if kept is None:
        wanted = "true or false"
        if setting.value_type != "bool":
            kind = "a whole number" if setting.value_type == "int" else "a number"
            wanted = f"{kind} from {setting.least:g} to {setting.most:g}"
        raise InvalidRequest(f"{key} must be {wanted}.", param="value")
    return kept


def _source(model: Model, overrides: Overrides, key: str) -> str:
    if key in overrides.settings:
        return "override"
    if SETTINGS[key].param in model.router_params_given:
        return "router_params"
    return "fallback" if key in overrides.fallbacks else "default"


def _fallback(key: str, setting: Setting, kept: Mapping[str, float]) -> SettingTold:
    if key in kept:
        return _told(key, setting, setting.typed(kept[key]), "fallback")
    return _told(key, setting, setting.default, "default")


def _told(key: str, setting: Setting, value: Value, source: str) -> SettingTold:
    return SettingTold(
        key=key,
        value=value,
        value_type=setting.value_type,
        default_value=setting.default,
        description=setting.description,
        min=setting.least,
        max=setting.most,
        source=source,
    )

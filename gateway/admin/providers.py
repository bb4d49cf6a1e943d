"""Provider labels in and out of service, in every model that has a route of theirs.

Each model has its overrides and their epoch to itself, so a label is disabled model by model; who
looks on meanwhile may find it disabled in some. What would leave a model without any route is
found before the first write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from gateway.admin.targets import NoSuchTarget, near
from gateway.admin.weights import as_configured
from gateway.config.result import Config
from gateway.core.overrides import Overrides
from gateway.core.route import Model
from gateway.errors import InvalidRequest
from gateway.routing.weights import weigh
from gateway.state.store import Store


class ProviderChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body that disables a label, or enables it again."""

    disabled: bool
    force: bool = False
    """Do it although a model is left without any route."""


class LabelInModel(Struct, frozen=True, kw_only=True):
    """A label's standing in one model."""

    model_id: str
    disabled: bool
    endpoints: Sequence[str]
    """Ids of its routes."""
    epoch: int


class Provider(Struct, frozen=True, kw_only=True):
    """A label's standing."""

    provider: str
    disabled: bool
    """In every model that has a route of it."""
    models: Sequence[LabelInModel]


class AllProviders(Struct, frozen=True, kw_only=True):
    """All labels that a route has, or that are disabled."""

    providers: Sequence[Provider]


class HalfDone(InvalidRequest):
    """Another operator came in between, and only some models have been changed."""

    status = 409
    code = "half_done"


class Providers:
    """Reads and changes which labels are in service. Each method raises `StateUnavailable`."""

    def __init__(self, config: Config, store: Store) -> None:
        self._models = config.models
        self._store = store

    async def all(self) -> AllProviders:
        """Of every label, read anew."""
        known = await self._read()
        labels = {route.provider for model in self._models.values() for route in model.routes}
        labels.update(*(overrides.disabled for overrides in known.values()))
        return AllProviders(providers=[self._standing(label, known) for label in sorted(labels)])

    async def of(self, label: str) -> Provider:
        """Of one label, read anew. Raises `NoSuchTarget`."""
        known = await self._read()
        standing = self._standing(label, known)
        if not standing.models:
            raise self._no_such(label)
        return standing

    async def change(self, label: str, change: ProviderChange) -> Provider:
        """Disable a label that a route has, or enable it.

        Raises `NoSuchTarget`, `InvalidRequest` with nothing written where a model would be left
        without a route, and `HalfDone`.
        """
        concerned = [model for model in self._models.values() if _has(model, label)]
        if not concerned:
            raise self._no_such(label)
        if not change.disabled:
            return await self.enable(label)
        known = await self._read()
        if not change.force:
            _judge(label, concerned, known)
        return await self._write(label, known, disabled=True, force=change.force)

    async def enable(self, label: str) -> Provider:
        """Put a label's routes back, also those of one that nobody configures any more."""
        return await self._write(label, await self._read(), disabled=False, force=False)

    async def _write(
        self, label: str, known: Mapping[str, Overrides], *, disabled: bool, force: bool
    ) -> Provider:
        done: list[str] = []
        for model_id in self._concerned(label, known):
            model = self._models[model_id]
            reply = await self._store.override_provider(
                model_id, label=label, disabled=disabled, routes=as_configured(model), force=force
            )
            if reply.status == "none_left":
                raise HalfDone(
                    f"'{label}' is disabled in {', '.join(done) or 'no model'}; in '{model_id}' no "
                    "route would be left, for its weights have just been changed. Those after it "
                    "are as they were."
                )
            done.append(model_id)
        return self._standing(label, await self._read())

    async def _read(self) -> dict[str, Overrides]:
        read = await asyncio.gather(*map(self._store.overrides, self._models))
        return dict(zip(self._models, read, strict=True))

    def _concerned(self, label: str, known: Mapping[str, Overrides]) -> list[str]:
        """Models that have a route of the label, or have it disabled."""
        return [
            model.id
            for model in self._models.values()
            if _has(model, label) or label in known[model.id].disabled
        ]

    def _standing(self, label: str, known: Mapping[str, Overrides]) -> Provider:
        models = [
            LabelInModel(
                model_id=model_id,
                disabled=label in known[model_id].disabled,
                endpoints=[
                    route.endpoint
                    for route in self._models[model_id].routes
                    if route.provider == label
                ],
                epoch=known[model_id].epoch,
            )
            for model_id in self._concerned(label, known)
        ]
        disabled = bool(models) and all(one.disabled for one in models)
        return Provider(provider=label, disabled=disabled, models=models)

    def _no_such(self, label: str) -> NoSuchTarget:
        labels = {route.provider for model in self._models.values() for route in model.routes}
        return NoSuchTarget(f"No route has the provider label '{label}'.{near(label, labels)}")


def _has(model: Model, label: str) -> bool:
    return any(route.provider == label for route in model.routes)


def _judge(label: str, models: Sequence[Model], known: Mapping[str, Overrides]) -> None:
    """Raise `InvalidRequest` where a model would be left without a route in service."""
    emptied: list[str] = []
    for model in models:
        before = known[model.id]
        after = structs.replace(before, disabled=before.disabled | {label})
        was_there = label not in before.disabled
        if was_there and not any(one.weight for one in weigh(model, after)):
            emptied.append(model.id)
    if emptied:
        raise InvalidRequest(
            f"Without '{label}' no route is left for {', '.join(emptied)}. Nothing was changed; "
            'To do it all the same send {"disabled": true, "force": true}.'
        )

"""A provider's label goes out of service everywhere, and never by accident leaves nothing."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gateway.admin.providers import HalfDone, Provider, ProviderChange, Providers
from gateway.admin.targets import NoSuchTarget
from gateway.core.route import Model, Route
from gateway.errors import InvalidRequest
from gateway.state.replies import OverrideReply
from tests.fakes.builders import config, model, route
from tests.unit.admin.conftest import Embedded

OFF, ON = ProviderChange(disabled=True), ProviderChange(disabled=False)
FORCED = ProviderChange(disabled=True, force=True)


def on(model_id: str, location: str, provider: str, weight: float = 1.0) -> Route:
    return route(location, model_id=model_id, provider=provider, weight=weight)


def of(model_id: str, *routes: Route) -> Model:
    return model(*routes, id=model_id)


BOTH = of("both", on("both", "a", "acme"), on("both", "b", "other"))
ALSO = of("also", on("also", "a", "acme"), on("also", "a2", "acme"), on("also", "b", "other"))
ALONE = of("alone", on("alone", "a", "acme"), on("alone", "b", "other", weight=0.0))
WITHOUT = of("without", on("without", "b", "other"))


def providers(store: Embedded, *models: Model) -> Providers:
    return Providers(config(*models), store)


def standing(found: Provider) -> dict[str, bool]:
    return {one.model_id: one.disabled for one in found.models}


async def test_labels_are_listed_with_the_models_that_have_them(store: Embedded) -> None:
    found = await providers(store, BOTH, ALSO, WITHOUT).all()
    assert [one.provider for one in found.providers] == ["acme", "other"]
    acme = found.providers[0]
    assert standing(acme) == {"both": False, "also": False}
    assert acme.models[1].endpoints == ["also:a", "also:a2"]
    assert not acme.disabled


async def test_disabled_label_is_out_in_every_model_that_has_it_under_new_epochs(
    store: Embedded,
) -> None:
    changing = providers(store, BOTH, ALSO, WITHOUT)
    found = await changing.change("acme", OFF)
    assert found.disabled
    assert standing(found) == {"both": True, "also": True}
    assert all(one.epoch > 0 for one in found.models)
    assert found == await changing.of("acme")
    assert (await store.overrides("without")).epoch == 0


@pytest.mark.parametrize("way", ["put", "delete"])
async def test_enabled_label_is_back_everywhere(store: Embedded, way: str) -> None:
    changing = providers(store, BOTH, ALSO)
    await changing.change("acme", OFF)
    found = await (changing.change("acme", ON) if way == "put" else changing.enable("acme"))
    assert not found.disabled
    assert standing(found) == {"both": False, "also": False}
    again = await changing.enable("acme")
    assert again == found


async def test_label_that_a_model_lives_on_is_refused_before_anything_is_written(
    store: Embedded,
) -> None:
    changing = providers(store, BOTH, ALONE, ALSO)
    with pytest.raises(InvalidRequest, match=r"no route is left for alone\. Nothing was changed"):
        await changing.change("acme", OFF)
    assert await store.everything() == {}


async def test_force_disables_it_all_the_same(store: Embedded) -> None:
    changing = providers(store, BOTH, ALONE)
    assert (await changing.change("acme", FORCED)).disabled
    # And once that is so, saying it again without force changes nothing and is no error
    assert (await changing.change("acme", OFF)).disabled


async def test_override_counts_in_the_judgement(store: Embedded) -> None:
    routes = [("a", "acme", 1.0), ("b", "other", 1.0)]
    await store.override_weight("both", location="b", weight=0.0, routes=routes)
    with pytest.raises(InvalidRequest, match="no route is left for both"):
        await providers(store, BOTH).change("acme", OFF)


class Interfering(Embedded):
    """Another operator zeroes the other route of `also` after the first write."""

    async def override_provider(
        self,
        model_id: str,
        *,
        label: str,
        disabled: bool,
        routes: Iterable[tuple[str, str, float]],
        force: bool,
    ) -> OverrideReply:
        routes = list(routes)
        reply = await super().override_provider(
            model_id, label=label, disabled=disabled, routes=routes, force=force
        )
        every = [(one.location, one.provider, one.weight) for one in ALSO.routes]
        await self.override_weight("also", location="b", weight=0.0, routes=every)
        return reply


async def test_race_that_is_lost_in_the_middle_is_told_with_what_was_done(
    store: Embedded,
) -> None:
    interfered = Interfering(store.runner, store.keys)
    changing = providers(interfered, BOTH, ALSO)
    with pytest.raises(HalfDone) as raised:
        await changing.change("acme", OFF)
    assert raised.value.status == 409
    assert "disabled in both; in 'also' no route would be left" in raised.value.message
    assert standing(await changing.of("acme")) == {"both": True, "also": False}


async def test_label_that_no_route_has_is_unknown(store: Embedded) -> None:
    changing = providers(store, BOTH)
    for change in (OFF, ON, FORCED):
        with pytest.raises(NoSuchTarget, match=r"'acmee'\. Near: acme\."):
            await changing.change("acmee", change)
    with pytest.raises(NoSuchTarget):
        await changing.of("acmee")


async def test_label_that_nobody_configures_any_more_can_still_be_enabled(
    store: Embedded,
) -> None:
    # Given a label that was disabled, and is gone from the files
    await providers(store, BOTH).change("acme", OFF)
    left = providers(store, of("both", on("both", "b", "other")))
    # Then it is still listed
    gone = (await left.all()).providers[0]
    assert (gone.provider, gone.disabled) == ("acme", True)
    assert (gone.models[0].model_id, gone.models[0].endpoints) == ("both", [])
    # When it is enabled, twice
    assert (await left.enable("acme")).models == []
    assert (await left.enable("acme")).models == []
    # Then nothing is left of it
    assert [one.provider for one in (await left.all()).providers] == ["other"]
    assert (await store.overrides("both")).disabled == frozenset()

"""From a name to a model, and one answer for all names that lead nowhere."""

from __future__ import annotations

import pytest

from gateway.api.responses import error_body
from gateway.core.caller import Caller
from gateway.core.route import Model
from gateway.errors import ModelNotFound
from gateway.resolve import resolve
from tests.fakes.builders import config, model

CONFIG = config(
    model(id="m", aliases=("alias", "org/alias")),
    model(id="secret", required_role="admin"),
    Model(id="unrouted", name="U", routes=()),
)
ANYBODY = Caller(id="ip:1.2.3.4")


def ask(name: str, caller: Caller = ANYBODY) -> Model:
    return resolve(name, caller, names=CONFIG.names, models=CONFIG.models)


@pytest.mark.parametrize("name", ["m", "alias", "org/alias"])
def test_ids_and_aliases_lead_to_the_same_model(name: str) -> None:
    assert ask(name).id == "m"


@pytest.mark.parametrize("name", ["unknown", "secret", "unrouted", "", "M", "../../m", "m "])
def test_unknown_forbidden_and_unrouted_names_get_the_same_answer(name: str) -> None:
    with pytest.raises(ModelNotFound) as refused:
        ask(name)
    assert error_body(refused.value) == error_body(ModelNotFound(name))


def test_a_key_for_other_models_cannot_tell_that_this_one_exists() -> None:
    with pytest.raises(ModelNotFound):
        ask("m", Caller(id="c", models=frozenset({"other"})))
    assert ask("secret", Caller(id="root", role="admin")).id == "secret"

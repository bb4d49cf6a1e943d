"""What is served when a variable is not set."""

from __future__ import annotations

from gateway.core.route import UpstreamKey

MODELS = """
models:
  - id: whole
    name: W
    provider: vllm
    aliases: [w]
    route:
      - {base_url: "http://a:1"}
      - {base_url: "http://b:1", api_key: "${NOPE}"}
  - id: partly
    name: P
    provider: vllm
    route:
      - {base_url: "http://a:1"}
      - {base_url: "${NOPE}", optional: true}
  - id: plain
    name: Q
    provider: vllm
    base_url: http://a:1
"""


def test_serving_drops_an_optional_route_or_else_the_whole_model(load_texts) -> None:
    # When
    loaded = load_texts(MODELS, serving=True)

    # Then
    assert list(loaded.config.models) == ["partly", "plain"]
    assert set(loaded.config.names) == {"partly", "plain"}
    assert len(loaded.config.models["partly"].routes) == 1
    assert [str(problem) for problem in loaded.warnings] == [
        "warning models.yaml: models[0].route[1].api_key: "
        "the variable NOPE is not set: the model 'whole' is dropped",
        "warning models.yaml: models[1].route[1].base_url: "
        "the variable NOPE is not set: this route of the model 'partly' is dropped",
    ]


def test_checking_refuses_what_serving_drops_unless_a_route_is_optional(load_texts) -> None:
    loaded = load_texts(MODELS)
    assert [problem.path for problem in loaded.errors] == ["models[0].route[1].api_key"]
    assert [problem.path for problem in loaded.warnings] == ["models[1].route[1].base_url"]
    assert (loaded.models, loaded.routes) == (3, 5)


def test_checking_may_allow_unset_variables(load_texts) -> None:
    loaded = load_texts(MODELS, allow_missing_env=True)
    assert not loaded.errors
    assert list(loaded.config.models) == ["partly", "plain"]


def test_a_variable_the_model_hands_down_concerns_the_routes_that_inherit_it(load_texts) -> None:
    # Given
    models = """
    models:
      - id: m
        name: M
        provider: vllm
        base_url: http://a:1
        api_key: ${NOPE}
        route:
          - {base_url: "http://own:1", api_key: own-key-1}
          - {optional: true}
    """

    # When
    loaded = load_texts(models, serving=True)

    # Then
    (route,) = loaded.config.models["m"].routes
    assert route.api_keys == (UpstreamKey("own-key-1"),)


def test_an_unset_variable_elsewhere_in_a_model_drops_it(load_texts) -> None:
    loaded = load_texts(
        "models: [{id: m, name: '${NOPE}', provider: vllm, base_url: 'http://a'},"
        " {id: n, name: N, provider: vllm, base_url: 'http://a', extra_body: {u: '${NOPE}'}}]",
        serving=True,
    )
    assert not loaded.errors
    assert not loaded.config.models


def test_a_list_of_keys_may_lose_some_but_not_all(load_texts) -> None:
    # Given
    def models(keys: str) -> str:
        return (
            f"models: [{{id: m, name: M, provider: vllm, base_url: 'http://a', api_keys: {keys}}}]"
        )

    # When
    some = load_texts(models("['${NOPE}', key-two]"), serving=True)
    none = load_texts(models("['${NOPE}', '${NOR}']"), serving=True)

    # Then
    assert some.config.models["m"].routes[0].api_keys == (UpstreamKey("key-two"),)
    assert "this key is left out" in some.warnings[0].message
    assert not none.errors
    assert not none.config.models


def test_serving_refuses_a_caller_whose_key_is_unset_and_keeps_the_others(load_texts) -> None:
    # When
    loaded = load_texts(
        MODELS,
        keys="keys: [{id: a, key: '${NOPE}'}, {id: b, key: abcdefgh, models: [w]}]",
        serving=True,
    )

    # Then
    (record,) = loaded.config.keys
    assert record.id == "b"
    assert record.models == {"whole"}


def test_an_unset_variable_in_the_settings_is_always_an_error(load_texts) -> None:
    loaded = load_texts(MODELS, routing="default_router: ${NOPE}", serving=True)
    assert [problem.file for problem in loaded.errors] == ["routing.yaml"]

"""What a model shows of its routes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.route import Model

MODELS = """
models:
  - id: m
    name: M
    provider: vllm
    {model}
    route:
      - {{base_url: "http://a:1", provider: first, {first}}}
      - {{base_url: "http://b:1", provider: second, {second}}}
"""


@pytest.fixture
def listed(load_texts) -> Any:
    def make(first: str = "", second: str = "", model: str = "") -> Model:
        loaded = load_texts(MODELS.format(first=first, second=second, model=model))
        assert not loaded.problems
        return loaded.config.models["m"]

    return make


@pytest.mark.parametrize("key", ["context_length", "max_output_length"])
def test_lengths_are_the_least_of_all_routes(listed, key: str) -> None:
    assert getattr(listed(f"{key}: 7000", f"{key}: 3000"), key) == 3000
    assert getattr(listed(f"{key}: 100", model=f"{key}: 300"), key) == 100
    assert getattr(listed(f"{key}: 500", model=f"{key}: 300"), key) == 300


def test_a_length_not_given_counts_as_the_default(listed) -> None:
    model = listed("context_length: 100000, max_output_length: 50000")
    assert (model.context_length, model.max_output_length) == (8192, 4096)


def test_parameters_are_those_that_every_route_takes_in_order_of_the_alphabet(listed) -> None:
    model = listed("supported_params: [top_p, seed, stop]", "supported_params: [stop, top_p, n]")
    assert model.supported_params == ("stop", "top_p")
    assert listed("supported_params: [seed]").supported_params == ()
    assert listed().supported_params == ("max_tokens", "temperature", "top_p")


@pytest.mark.parametrize("key", ["supports_tools", "supports_structured_output"])
def test_a_feature_is_there_when_any_route_has_it(listed, key: str) -> None:
    assert getattr(listed("", f"{key}: true"), key)
    assert getattr(listed(f"{key}: false", model=f"{key}: true"), key)
    assert not getattr(listed(f"{key}: false", f"{key}: false", f"{key}: true"), key)
    assert not getattr(listed(), key)


def test_price_quantization_and_provider_are_the_first_routes(listed) -> None:
    model = listed(
        "quantization: fp8, pricing: {prompt: 1.5}",
        "quantization: int4, pricing: {prompt: 2, image: 1}",
        "pricing: {prompt: 3, completion: 3}",
    )
    assert (model.quantization, model.pricing) == ("fp8", {"prompt": "1.5"})
    assert model.routes[0].provider == "first"
    assert listed("", "quantization: int4", "quantization: fp4").quantization == "fp4"


def test_kinds_of_input_are_all_that_some_route_takes(listed) -> None:
    model = listed("input_modalities: [text, image]", "input_modalities: [audio, text]")
    assert model.input_modalities == ("text", "image", "audio")

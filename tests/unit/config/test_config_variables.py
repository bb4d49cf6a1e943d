from __future__ import annotations

import pytest

from gateway.config.expand import Unset, expand

ENV = {"HOST": "engine-1", "PORT": "8000", "EMPTY": "", "_x1": "low"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${HOST}", "engine-1"),
        ("http://${HOST}:${PORT}/v1", "http://engine-1:8000/v1"),
        ("${_x1}", "low"),
        ("${NOPE:-fallback}", "fallback"),
        ("${NOPE:-http://a:1/v1}", "http://a:1/v1"),
        ("${EMPTY:-fallback}", "fallback"),
        ("${NOPE:-}", ""),
        ("$${HOST}", "${HOST}"),
        ("a $${HOST} ${HOST}", "a ${HOST} engine-1"),
        ("$HOST costs $5", "$HOST costs $5"),
    ],
)
def test_variables_are_replaced(text: str, expanded: str) -> None:
    assert expand({"a": [text]}, ENV).tree == {"a": [expanded]}


@pytest.mark.parametrize("text", ["${NOPE}", "http://${NOPE}:1", "${EMPTY}"])
def test_an_unset_variable_leaves_a_gap_with_its_path(text: str) -> None:
    # When
    expansion = expand({"a": [{"b": text}]}, ENV)

    # Then
    assert isinstance(expansion.tree["a"][0]["b"], Unset)
    assert [missing.path for missing in expansion.missing] == ["a[0].b"]


@pytest.mark.parametrize("text", ["${1X}", "${HOST", "${}", "${HO ST}"])
def test_a_broken_reference_is_noted(text: str) -> None:
    assert expand({"a": text}, ENV).broken == ("a",)


@pytest.mark.parametrize("text", ["${NOPE:-${HOST}}", "${HOST:-${NOPE}}", "a ${NOPE:-x$${y} z"])
def test_a_reference_inside_a_default_is_noted_and_not_taken_literally(text: str) -> None:
    assert expand([text], ENV).nested == ("[0]",)


def test_values_are_not_expanded_twice() -> None:
    assert expand("${A}", {"A": "${B}", "B": "x"}).tree == "${B}"


def test_a_variable_may_hold_a_number_or_a_flag(load_texts) -> None:
    # When
    loaded = load_texts(
        """
        models:
          - id: m
            name: M
            provider: vllm
            supports_tools: ${TOOLS}
            context_length: ${WINDOW}
            extra_body: {top_k: 5, user: "${HOST}"}
            route: [{base_url: "http://${HOST}:${PORT}", weight: "${W:-0.25}"}]
        """,
        env={**ENV, "TOOLS": "true", "WINDOW": "4096"},
    )

    # Then
    model = loaded.config.models["m"]
    assert (model.supports_tools, model.context_length) == (True, 4096)
    assert model.routes[0].weight == 0.25
    assert model.routes[0].extra_body == {"top_k": 5, "user": "engine-1"}
    assert type(model.routes[0].extra_body["user"]) is str


def test_a_number_written_as_text_is_no_number(load_texts) -> None:
    loaded = load_texts(
        'models: [{id: m, name: M, provider: vllm, base_url: "http://a", context_length: "4096"}]'
    )
    assert [problem.path for problem in loaded.errors] == ["models[0].context_length"]

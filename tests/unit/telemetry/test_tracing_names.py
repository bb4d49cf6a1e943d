"""The names that dashboards are built on stay as they are, and are spelt in one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import asdict

from gateway.telemetry import names

ROOT = Path(names.__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("asked", "is_latest"),
    [
        (None, False),
        ("", False),
        ("http", False),
        ("gen_ai_latest_experimental", True),
        ("http/dup, gen_ai_latest_experimental ", True),
        ("gen_ai_latest_experimental2", False),
    ],
)
def test_the_generation_is_chosen_by_the_standard_variable(
    asked: str | None, is_latest: bool
) -> None:
    env = {} if asked is None else {"OTEL_SEMCONV_STABILITY_OPT_IN": asked}

    assert names.gen_ai(env) is (names.LATEST if is_latest else names.LEGACY)


def test_the_older_names_for_generative_ai_are_pinned() -> None:
    assert asdict(names.LEGACY) == {
        "provider": "gen_ai.system",
        "operation": "gen_ai.operation.name",
        "model": "gen_ai.request.model",
        "stream": None,
        "input_tokens": "gen_ai.usage.input_tokens",
        "output_tokens": "gen_ai.usage.output_tokens",
        "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
        "ttft_s": None,
    }


def test_the_newer_names_for_generative_ai_are_pinned() -> None:
    assert asdict(names.LATEST) == {
        "provider": "gen_ai.provider.name",
        "operation": "gen_ai.operation.name",
        "model": "gen_ai.request.model",
        "stream": "gen_ai.request.stream",
        "input_tokens": "gen_ai.usage.input_tokens",
        "output_tokens": "gen_ai.usage.output_tokens",
        "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
        "ttft_s": "gen_ai.response.time_to_first_chunk",
    }


def test_no_attribute_is_spelt_anywhere_else() -> None:
    constants = [value for name, value in vars(names).items() if name.isupper()]
    attributes = {value for value in constants if isinstance(value, str) and "." in value}
    assert len(attributes) > 20
    others = [path for path in ROOT.rglob("*.py") if path != Path(names.__file__)]
    elsewhere = {
        f"{path.relative_to(ROOT)}: {quoted}"
        for path in others
        for quoted in re.findall(r"""["']([a-z_.]+)["']""", path.read_text("utf-8"))
        if quoted in attributes or quoted.startswith("gen_ai.")
    }
    assert elsewhere == set()

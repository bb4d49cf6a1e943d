"""`offload:` of a model, as it is read."""

from __future__ import annotations

import yaml

from gateway.core.offload import Offload

GIVEN = {"route_id": "b", "wait_seconds": 3, "engine_queue_limit": 1, "max_input_tokens": 9}


def loaded_of(load_texts, *routes: dict, **model: object):
    named = {"id": "m", "name": "M", "provider": "vllm", "offload": GIVEN}
    listed = [
        {"base_url": f"http://{at}:1", "location": at, **one}
        for at, one in zip("abc", routes, strict=False)
    ]
    return load_texts(yaml.safe_dump({"models": [{**named, **model, "route": listed}]}))


def test_a_policy_is_read_with_its_wait_in_seconds(load_texts) -> None:
    loaded = loaded_of(load_texts, {}, {})

    assert loaded.problems == ()
    offload = loaded.config.models["m"].offload
    assert offload == Offload(location="b", wait_s=3.0, engine_queue_limit=1, max_input_tokens=9)
    assert isinstance(offload.wait_s, float)


def test_a_route_that_is_left_out_for_now_leaves_the_policy_without_effect(load_texts) -> None:
    absent = {"api_key": "${NOT_SET}", "optional": True}

    loaded = loaded_of(load_texts, {}, absent, {}, offload={**GIVEN, "route_id": "b"})

    [problem] = [one for one in loaded.problems if "offload" in one.path]
    assert (problem.severity, problem.path) == ("warning", "models[0].offload.route_id")


def test_a_route_of_weight_0_may_be_named(load_texts) -> None:
    loaded = loaded_of(load_texts, {}, {"weight": 0})

    assert loaded.config.models["m"].offload is not None

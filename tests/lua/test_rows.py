"""rows: everything live of a model, as it stands."""

from __future__ import annotations

from tests.lua.rig import START_MS, Rig


def test_of_an_empty_model_there_is_nothing(rig: Rig) -> None:
    before = rig.state()

    assert rig.run("rows") == ["done", 0, []]
    assert rig.state() == before


def test_fields_and_claims_are_told(rig: Rig) -> None:
    rig.admit("r.1")
    rig.admit("r.2")
    before = rig.state()

    _, claims, fields = rig.run("rows")

    assert claims == 2
    assert dict(zip(fields[::2], fields[1::2], strict=True)) == {
        "a:inflight": "2",
        "at_ms": str(START_MS),
    }
    assert rig.state() == before

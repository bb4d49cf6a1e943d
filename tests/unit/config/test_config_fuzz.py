"""Whatever a file holds, loading reports it and does not raise."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import load

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "config" / "examples" / "hybrid"
JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**400,
    float("nan"),
    float("inf"),
    "",
    " ",
    "${NOPE}",
    "${",
    "http://[",
    "http://a:b",
    "http://a..b",
    "http://xn--a",
    "\ud800",
    "${NOPE:-${NOPE}}",
    1e308,
    5e-324,
    [],
    [None],
    [[]],
    {},
    {"a": None},
    {"": ""},
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """List every (container, key) of a tree."""
    items = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [place for key, item in items for place in ((value, key), *places(item))]


@pytest.mark.parametrize("seed", range(4))
def test_loading_never_raises(tmp_path: Path, seed: int) -> None:
    # Given
    rng = random.Random(seed)
    trees = {
        path.name: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted(EXAMPLE.glob("*.yaml"))
    }
    trees["routing.yaml"] = yaml.safe_load((ROOT / "config" / "routing.yaml").read_text("utf-8"))
    for _ in range(20):
        for name, tree in trees.items():
            broken = copy.deepcopy(tree)
            for _ in range(rng.randint(0, 3)):
                container, key = rng.choice(places(broken) or [({}, "x")])
                container[key] = copy.deepcopy(rng.choice(JUNK))
            (tmp_path / name).write_text(yaml.safe_dump(broken), encoding="utf-8")

        # When
        loaded = load(tmp_path, {}, serving=rng.random() < 0.5)

        # Then
        assert (loaded.config is None) == bool(loaded.errors)

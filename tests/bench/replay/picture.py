"""`python -m tests.bench.replay.picture RESULTS PNG`: draw what a replay has found.

matplotlib is no dependency of the project: run it with `uv run --with matplotlib`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from matplotlib import pyplot  # type: ignore[import-not-found]

from tests.bench.replay.report import OURS, by_minute, mean_s
from tests.bench.replay.run import Result

COLOURS = dict(
    zip(
        ("uniform", "least busy", "weights", "pins", "fixed", OURS),
        ("#bbbbbb", "#8c8c8c", "#56b4e9", "#0072b2", "#e69f00", "#d55e00"),
        strict=True,
    )
)
TIMED = ("one dies, returns", "load 1, an hour")


def main(results: Path, png: Path) -> None:
    """Times and hit rates over load, and times over time where something happens."""
    found = msgspec.json.decode(results.read_bytes(), type=dict[str, dict[str, Result]])
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7), constrained_layout=True)
    loads = {float(name.split()[1]): row for name, row in found.items() if _is_load(name)}
    for name, colour in COLOURS.items():
        line = {"color": colour, "label": name, "linewidth": 2.2 if name == OURS else 1.4}
        xs = [load for load, row in sorted(loads.items()) if name in row]
        shown = [loads[load][name] for load in xs]
        axes[0][0].plot(xs, [mean_s(one) for one in shown], marker="o", markersize=3, **line)
        hits = [one.cached_tokens / one.prompt_tokens for one in shown]
        axes[0][1].plot(xs, hits, marker="o", markersize=3, **line)
        for axis, scene in zip(axes[1], TIMED, strict=True):
            if name in found.get(scene, {}):
                axis.plot(*zip(*by_minute(found[scene][name]), strict=True), **line)
    for axis, title, x in (
        (axes[0][0], "mean time to first token, s", "load"),
        (axes[0][1], "prompt tokens found cached", "load"),
        (axes[1][0], f"{TIMED[0]}, at load 0.8: mean time to first token, s", "minute"),
        (axes[1][1], f"{TIMED[1]}: mean time to first token, s", "minute"),
    ):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(x)
        axis.grid(alpha=0.25)
    for axis in (axes[0][0], *axes[1]):
        axis.set_yscale("log")
    axes[0][0].legend(fontsize=8)
    figure.savefig(png, dpi=90)


def _is_load(scene: str) -> bool:
    return scene.startswith("load ") and "," not in scene


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

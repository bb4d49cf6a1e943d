"""The table: medians of all rounds, a column per gateway, and how Concord compares with peers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from tests.bench import measures
from tests.bench.measures import Extent, Values

OURS = "Concord"
COMPARED = ("sglang-router", "LiteLLM")
SATURATED = 0.9
"""Share of its core that a gateway has used where a rate is its own limit."""
NOTES = f"""\
- Medians. Every gateway has one core to itself; load, upstreams and Redis have the others.
- The last columns say how many times better {OURS} is: above 1 it is faster, cheaper or smaller.
- ≥ : the gateway's core was not busy, so something else was the limit (the load, or waiting), and
  there is no ratio; compare the CPU time instead.
- Added latency is that through the gateway less that of the upstream alone. A gateway that cannot
  serve {measures.RATE:.0f}/s twice over is asked at half its own rate.
- Events/s of paced streams below what the upstream sends mean that the gateway cannot follow.
- – : does not apply, failed as told below, or not all streams began in {measures.OPEN_S:.0f} s.\
"""


class Row(Struct, frozen=True):
    """A measure, and how it is shown."""

    name: str
    title: str
    form: str
    better: str = ""
    """`more` or `less`; empty where there is nothing to compare."""
    busy: str = ""
    """The measure that says how busy the core was meanwhile."""


class Column(Struct):
    """What is known of a gateway."""

    name: str
    version: str
    note: str
    rounds: dict[str, list[float]]
    trouble: dict[str, str]
    """What is missing, and why."""

    def add(self, values: Values) -> None:
        """Take in what a round has measured."""
        for name, value in values.items():
            self.rounds.setdefault(name, []).append(value)

    def value(self, name: str) -> float | None:
        """The median of a measure."""
        found = self.rounds.get(name)
        return median(found) if found else None


def rows(extent: Extent) -> list[Row]:
    """All rows in order."""
    unpaced = f"{measures.UNPACED_STREAMS} unpaced streams"
    paced = f"{measures.PACED_STREAMS} streams, an event per {measures.PACE_MS} ms"
    streams = f"{extent.open_streams:,} open streams"
    return [
        Row("rps", f"requests/s, {measures.CONNECTIONS} connections", ",.0f", "more", "busy"),
        Row("busy", "— share of its core used", ".0%"),
        Row("cpu_us", "CPU per request, µs", ",.0f", "less"),
        Row("redis_us", "Redis CPU per request, µs", ",.0f"),
        Row("p50_ms", "added latency p50, ms", ".2f", "less"),
        Row("p99_ms", "added latency p99, ms", ".2f", "less"),
        Row("rate", "— at requests/s", ",.0f"),
        Row("unpaced_per_s", f"events/s, {unpaced}", ",.0f", "more", "unpaced_busy"),
        Row("unpaced_busy", "— share of its core used", ".0%"),
        Row("unpaced_us", "CPU per event of these, µs", ",.2f", "less"),
        Row("paced_per_s", f"events/s, {paced}", ",.0f"),
        Row("paced_us", "CPU per event of these, µs", ",.1f", "less"),
        Row("rss_mb", "memory when idle, MB", ",.0f", "less"),
        Row("kb_per_stream", f"memory per stream, KB, {streams}", ",.0f", "less"),
    ]


def render(columns: Sequence[Column], extent: Extent) -> str:
    """Write the table in markdown, its notes below."""
    by_name = {column.name: column for column in columns}
    peers = [by_name[name] for name in COMPARED if name in by_name and OURS in by_name]
    head = ["", *by_name, *(f"to {peer.name}" for peer in peers)]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    lines.append(["version", *(column.version for column in columns), *("" for _ in peers)])
    for row in rows(extent):
        ratios = [_ratio(row, by_name[OURS], peer) for peer in peers]
        lines.append([row.title, *(_cell(row, column) for column in columns), *ratios])
    table = [f"| {' | '.join(line)} |" for line in lines]
    notes = [f"- {column.name}: {column.note}." for column in columns]
    missing = [
        f"- {column.name}, missing: {column.trouble}" for column in columns if column.trouble
    ]
    return "\n".join([*table, "", NOTES, *notes, *missing])


def _cell(row: Row, column: Column) -> str:
    value = column.value(row.name)
    if value is None:
        return "–"
    return ("" if _is_its_own(row, column) else "≥ ") + format(value, row.form)


def _ratio(row: Row, ours: Column, theirs: Column) -> str:
    a, b = ours.value(row.name), theirs.value(row.name)
    is_fair = _is_its_own(row, ours) and _is_its_own(row, theirs)
    if not row.better or not is_fair or a is None or b is None or a <= 0 or b <= 0:
        return ""
    return f"{a / b if row.better == 'more' else b / a:,.2f}"


def _is_its_own(row: Row, column: Column) -> bool:
    """Whether a rate is the gateway's own limit; what is not a rate always is its own."""
    return not row.busy or (column.value(row.busy) or 0.0) >= SATURATED

"""A run: every gateway in front of every kind of upstreams, round by round, in turn."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tests.bench import machine, profiling, upstreams
from tests.bench.client import Failed
from tests.bench.concord import CONCORD
from tests.bench.measures import Bench, Extent
from tests.bench.peers import Absent
from tests.bench.processes import NotUp
from tests.bench.running import Gateway, Running, Setup
from tests.bench.table import Column
from tests.bench.upstreams import Kind

ALL = "all"


class Comparison(Struct, frozen=True):
    """What all measurements of a run share."""

    bench: Bench
    cores: Collection[int]

    def rounds(self, gateways: Sequence[Gateway], repeats: int) -> list[Column]:
        """Measure all; what one gateway cannot do is noted in its column, and the rest goes on."""
        columns = [_column(gateway) for gateway in gateways]
        for number in range(repeats):
            for kind in Kind:
                for gateway, column in zip(gateways, columns, strict=True):
                    if column.trouble.keys() & {ALL, kind}:
                        continue
                    _say(f"round {number + 1} of {repeats}: {gateway.name}, {kind}")
                    try:
                        with self.start(gateway, kind) as running:
                            column.add(self.bench.measure(running, kind))
                    except (NotUp, Failed, OSError) as error:
                        column.trouble[kind] = str(error)
                        _say(f"{gateway.name}: {error}")
        return columns

    def profile(self, file: Path) -> None:
        """Write where Concord's time goes while wrk asks it without pause."""
        extent = self.bench.extent
        with self.start(CONCORD, Kind.WHOLE) as running:
            seconds = extent.warm_s + extent.seconds
            with profiling.record(running.process.pid, file, seconds, self.bench.load_cores):
                self.bench.requests(running)

    @contextmanager
    def start(self, gateway: Gateway, kind: Kind) -> Iterator[Running]:
        """Have a gateway in front of upstreams of a kind, and see that it answers."""
        with tempfile.TemporaryDirectory(prefix="gateway-", dir=self.bench.folder) as folder:
            setup = Setup(
                folder=Path(folder),
                upstreams=self.bench.upstreams.urls[kind],
                port=machine.free_ports(1)[0],
                cores=self.cores,
                other_cores=self.bench.load_cores,
            )
            with gateway.start(setup) as running:
                running.check(kind)
                yield running


@contextmanager
def prepare(
    extent: Extent, cores: Collection[int], others: Collection[int]
) -> Iterator[Comparison]:
    """Start what all gateways need."""
    with (
        tempfile.TemporaryDirectory(prefix="concord-bench-") as folder,
        upstreams.serve(Path(folder), others) as served,
    ):
        yield Comparison(Bench(served, extent, Path(folder), others), cores)


def _column(gateway: Gateway) -> Column:
    try:
        return Column(gateway.name, gateway.version(), gateway.note, {}, {})
    except Absent as error:
        return Column(gateway.name, "–", gateway.note, {}, {ALL: str(error)})


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

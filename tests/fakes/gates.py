"""Gates that let attempts pass, or not, as the test says."""

from __future__ import annotations

from gateway.core.route import Route
from gateway.dispatch.classify import UpstreamFailure
from gateway.dispatch.gating import Gates, Line, Pass, Waits
from gateway.dispatch.kinds import Kind
from gateway.telemetry.tracing import Trace
from tests.fakes.holds import Hold


class ScriptedPass(Pass):
    """Remembers how it was left."""

    def __init__(self, gates: ScriptedGates, at: str) -> None:
        super().__init__()
        self._all, self._at = gates, at

    def first_output(self) -> None:
        """Note it."""
        self._all.firsts.append(self._at)

    def leave(self, status: int | None) -> None:
        """Note it."""
        self._all.left.append((self._at, status))


class ScriptedGates(Gates):
    """By location: how the next waits end. With none told an attempt passes at once."""

    def __init__(self, **ends: list[Kind | Hold]) -> None:
        self.ends = ends
        self.waits: list[tuple[str, Waits]] = []
        """Of each attempt that came, in turn."""
        self.left: list[tuple[str, int | None]] = []
        self.firsts: list[str] = []

    async def enter(
        self,
        route: Route,
        key: str | None,
        *,
        is_stream: bool,
        waits: Waits,
        line: Line,
        trace: Trace,
    ) -> Pass:
        """Wait as told."""
        at = route.location
        self.waits.append((at, waits))
        if ends := self.ends.get(at):
            end, has_place = ends.pop(0), False
            line.queued()
            try:
                if isinstance(end, Kind):
                    raise UpstreamFailure(route, end, error_type=str(end))
                await end.wait()
                has_place = True
            finally:
                line.passed(0.01, has_place=has_place)
        return ScriptedPass(self, at)

    @property
    def timed(self) -> dict[str, bool]:
        """Location of the last attempt there to whether it had a deadline."""
        return {at: waits.queue_until_s is not None for at, waits in self.waits}

"""Reading the configuration anew, as far as an operator hears of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from gateway.config.problems import Problem


class Reloaded(Struct, frozen=True, kw_only=True):
    """What came of reading the configuration anew."""

    config_digest: str
    """Of the one that is served now."""
    changed: bool = False
    needs_restart: tuple[str, ...] = ()
    """Settings that differ and wait for a restart."""
    problems: tuple[Problem, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether what was read cannot be served, so that the old one stays."""
        return any(problem.severity == "error" for problem in self.problems)


Reload = Callable[[], Awaitable[Reloaded]]

"""How durations are written."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

DAY_S = 86_400
YEAR_S = 365 * DAY_S
"""No duration is longer, so that its milliseconds are exact everywhere they go, such as in Lua."""
Seconds = Annotated[float, Meta(ge=0, le=YEAR_S)]
Pause = Annotated[float, Meta(ge=0, le=DAY_S)]

"""Numbers of the last while: those that count, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.window import Window

SEEN = st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9)), max_size=30)


@given(SEEN, st.none() | st.integers(1, 12), st.integers(0, 30))
def test_has_the_last_of_what_is_recent_enough_in_order(
    seen: list[tuple[int, int | None]], most: int | None, length_ms: int
) -> None:
    window, kept, now_ms = Window(length_ms, most), [], 0
    for pause_ms, number in seen:
        now_ms += pause_ms
        window.add(now_ms, number)
        kept = [*kept, (now_ms, number)][-(most or 99) :]
        if number != 5:  # not every time
            window.forget(now_ms)
            kept = [(at_ms, one) for at_ms, one in kept if at_ms >= now_ms - length_ms]

        assert window.ordered == sorted(one for _, one in kept if one is not None)
        assert len(window) == len(kept)

"""A model's profile as it is kept in Redis: JSON behind the epoch and the time of its writer."""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from gateway.core.profile import Profile

_PUBLISHED = re.compile(r"epoch=(\d{1,15}) at_ms=(\d{1,15}) (.*)", re.DOTALL)
_decoder = msgspec.json.Decoder(Profile)


class PublishedProfile(Struct, frozen=True, kw_only=True):
    """A profile, and when it was put down."""

    profile: Profile
    epoch: int
    """Of the coordinator that wrote it."""
    at_ms: int
    """By the clock of Redis."""
    age_ms: int


def write_profile(profile: Profile) -> str:
    """Spell a profile; `read_profile` reads it."""
    return msgspec.json.encode(profile).decode()


def read_profile(text: str, now_ms: int) -> PublishedProfile | None:
    """Read what `publish_profile` has put down; `None` for nothing, or for nonsense."""
    match = _PUBLISHED.fullmatch(text)
    if match is None:
        return None
    try:
        profile = _decoder.decode(match[3])
    except msgspec.DecodeError:
        return None
    at_ms = int(match[2])
    return PublishedProfile(
        profile=profile, epoch=int(match[1]), at_ms=at_ms, age_ms=max(now_ms - at_ms, 0)
    )

"""What the scripts answer, a Struct per shape, in the order of the header's RETURNS."""

from __future__ import annotations

from urllib.parse import unquote

from msgspec import Struct


class Reply(Struct, frozen=True, array_like=True):
    """Every answer begins with its status."""

    status: str


class AdmitReply(Reply, frozen=True, array_like=True):
    """What `admit` decided. `drawn` is how many of the request's numbers the draw has used."""

    location: str
    probe: int
    inflight: int
    drawn: int
    retry_after_ms: int
    reasons: str
    pin: str
    """What became of the caller's pin: `kept`, `made`, or nothing."""
    tokens: int
    """What the claim is charged for in prefill."""
    elephant: int
    cached_tokens: int
    """How much of this conversation the endpoint is believed to have cached."""
    anchor: str
    taken: str
    """Of the endpoint's limits, to be told when the claim ends."""
    reserve: int = 0
    """Whether another was found, and the reserve could be taken, too."""

    @property
    def is_admitted(self) -> bool:
        """Whether there is a claim."""
        return self.status == "admitted"

    @property
    def is_short(self) -> bool:
        """Whether nothing was decided, for the draw has used up its numbers."""
        return self.status == "short"

    @property
    def is_stale(self) -> bool:
        """Whether nothing was decided, for other overrides hold now."""
        return self.status == "stale"

    def passed_over(self) -> dict[str, str]:
        """Location to reason, of the endpoints that were looked at and not taken."""
        return read_reasons(self.reasons) if self.reasons else {}


class ExplainReply(Reply, frozen=True, array_like=True):
    """What `admit` would decide, the fields of the endpoints hash, in turn, and `standing`."""

    location: str
    probe: int
    drawn: int
    retry_after_ms: int
    reasons: str
    pin: str
    tokens: int
    scores: str
    """`<location>=<ms> ...` where endpoints are compared: the least is the best."""
    shares: str
    """`<location>=<share> ...` where they are mixed."""
    costs: str
    """`<location>=<US dollars> ...` likewise."""
    fields: list[str]
    limits: list[str]
    cooldowns: list[str]
    retries: str


class RecordReply(Reply, frozen=True, array_like=True):
    """What `first_token` or `settle` did, and whether it turned the circuit."""

    circuit: str


class RenewReply(Reply, frozen=True, array_like=True):
    """The claims that the store does not know, separated by spaces."""

    unknown: str


class RenewClaimsReply(RenewReply, frozen=True, array_like=True):
    """Also those of whose first output it has not heard."""

    unheard: str


class StatusReply(Reply, frozen=True, array_like=True):
    """A bare status."""


class CountReply(Reply, frozen=True, array_like=True):
    """A status and a number."""

    count: int


class BeatReply(Reply, frozen=True, array_like=True):
    """How many replicas live, and what ids are keyed with where there is no secret."""

    live_replicas: int
    salt: str


class ReplicasReply(Reply, frozen=True, array_like=True):
    """The server's time, what ids are keyed with, and replicas and what they say, in turn."""

    now_ms: int
    salt: str
    fields: list[str]


class CoordinatorReply(Reply, frozen=True, array_like=True):
    """The server's time, and fields and values of the lease and of what is published, in turn."""

    now_ms: int
    lease: list[str]
    published: list[str]


class RowsReply(Reply, frozen=True, array_like=True):
    """How many claims stand, fields and values of the endpoints hash, in turn, and `standing`."""

    claims: int
    fields: list[str]
    limits: list[str]
    cooldowns: list[str]
    retries: str


class ProfileReply(Reply, frozen=True, array_like=True):
    """The server's time, and a model's profile as text; empty for none."""

    now_ms: int
    profile: str


class OverridesReply(Reply, frozen=True, array_like=True):
    """The epoch, and fields and values of the overrides hash, in turn."""

    epoch: str
    fields: list[str]


class OverrideReply(Reply, frozen=True, array_like=True):
    """Whether an override was taken (`done`, `same`, `none_left`), and the epoch now."""

    epoch: str


class ResetReply(Reply, frozen=True, array_like=True):
    """An endpoint's circuit before it was reset."""

    circuit: str


class PinReply(Reply, frozen=True, array_like=True):
    """A pin as text, empty for none, and for how long it still stands."""

    pin: str
    left_ms: int


def read_scores(text: str) -> dict[str, float]:
    """Location to score, of `<location>=<ms> ...`."""
    return {location: float(score) for location, score in read_reasons(text).items()}


def read_reasons(text: str) -> dict[str, str]:
    """Location to reason, of `<location>=<reason> ...`."""
    pairs = (word.rpartition("=") for word in text.split())
    return {unquote(location): reason for location, _, reason in pairs}


def read_shares(text: str) -> dict[str, float]:
    """Location to share, of `<location>=<share> ...`."""
    return {location: float(share) for location, share in read_reasons(text).items()}

"""Make an upstream's words fit for a client or a log.

Takes out what names our side: addresses, credentials, account ids, the provider's name for the
model. It works by pattern, so it errs toward removing too much; an echo of the client's own
prompt it cannot tell from the provider's words.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from gateway.core.route import Route

MAX_CHARS = 500
_MAX_SCANNED_CHARS = 4000

_TLD = (
    "com|net|org|edu|gov|io|ai|dev|cloud|app|co|cn|eu|de|uk|fr|ru|jp|kr|xyz|tech|sh|gg|"
    "internal|intern|local|localdomain|lan|corp|svc|consul|example"
)
_HEXTET = "[0-9a-f]{1,4}"
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"\b[a-z][a-z0-9+.-]{0,20}://[^\s\"'<>)\]]+", "[url]"),
        (r"\b(Bearer|Basic)\s+[\w.~+/*=-]+", r"\1 [key]"),
        (r"\b(?:sk|pk|rk|gsk|xai|hf|nvapi|tgp|fw|csk|r8|pplx)[-_][\w*.-]{4,}", "[key]"),
        (r"\bAIza[\w-]{10,}|\beyJ[\w-]{10,}\.[\w.-]+", "[key]"),
        (r"\b(?:org|proj|acct|user|team|key)[-_][a-z0-9]{8,}\b", "[id]"),
        (r"(?<![\w-])(?=\w*\d)(?=\w*[a-z])\w{32,}(?![\w-])", "[key]"),
        (r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?(?![\w.]\d)", "[host]"),
        (rf"\[?(?<![\w:])(?:{_HEXTET}(?::{_HEXTET})*)?::[0-9a-f:.]*\]?(?::\d{{1,5}})?", "[host]"),
        (rf"\[?(?<![\w:])(?:{_HEXTET}:){{7}}{_HEXTET}\b\]?(?::\d{{1,5}})?", "[host]"),
        (rf"(?<![\w.-])(?:[a-z0-9_-]+\.)+(?:{_TLD})(?![\w-])(?::\d{{1,5}})?", "[host]"),
        (r"\blocalhost(?::\d{1,5})?\b", "[host]"),
        (r"(?<![\w-])(?=[0-9-]*[a-z])(?=[a-z]*[0-9-])[a-z0-9-]+:(?:\d{4,5}|443|80)\b", "[host]"),
        (r"(\b(?:to|from|resolve) host )[\w.-]+(?::\d{1,5})?", r"\1[host]"),
    )
)
_MODEL = "\ufffc"  # stands for the model's name while the patterns run
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ufffc\u2028\u2029]+")


def scrub(text: str, route: Route, model: str) -> str:
    """Return the text on one line of at most MAX_CHARS, without what names our side.

    `model` takes the place of the route's name for it. The answer is empty when nothing is left.
    """
    text = _UNPRINTABLE.sub(" ", text[:_MAX_SCANNED_CHARS]).strip()
    for key in route.api_keys:
        text = text.replace(key.secret, "[key]")
    if host := urlsplit(route.base_url).hostname:
        text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])(?::\d{{1,5}})?", "[host]", text)
    text = re.sub(rf"(?<![\w./-]){re.escape(route.upstream_model)}(?![\w/-])", _MODEL, text)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    text = text.replace(_MODEL, model)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1].rstrip() + "…"

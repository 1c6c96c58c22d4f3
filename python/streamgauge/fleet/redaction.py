"""Secrets stay in requests: what a worker says of one is shown and stored without them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

HIDDEN = "(hidden)"
FIELDS = frozenset({"password", "token", "seed", "key_pem"})
"""Members of a request (docs/worker-api.md) whose values must not come back in an error."""
CHARACTERS_MIN = 4
"""A shorter secret is not searched for: replacing every "a" in a sentence would say more than it hides."""


def secrets_in(body: object) -> Iterator[str]:
    """The secrets in a request to a worker, wherever they are in it."""
    if isinstance(body, Mapping):
        for key, value in body.items():
            if key in FIELDS and isinstance(value, str):
                yield value
            else:
                yield from secrets_in(value)
    elif isinstance(body, list):
        for value in body:
            yield from secrets_in(value)


def redacted(text: str, secrets: Collection[str]) -> str:
    """A text without these secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= CHARACTERS_MIN:
            text = text.replace(secret, HIDDEN)
    return text

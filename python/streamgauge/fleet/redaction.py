"""Secrets stay in requests: what a worker says of one is shown and stored without them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import quote

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


def _forms(secret: str) -> Iterator[str]:
    """A secret as a message may have it: itself, as JSON or in a URL, a line of its PEM."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield quote(secret, safe="")
    if "\n" in secret:
        yield from (line for line in secret.splitlines() if not line.startswith("-----"))


def redacted(text: str, secrets: Collection[str]) -> str:
    """A text without these secrets."""
    forms = {form for secret in secrets for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        if len(form) >= CHARACTERS_MIN:
            text = text.replace(form, HIDDEN)
    return text

"""What options may hold that is done for a trusted file alone (docs/security.md)."""

from __future__ import annotations

from dataclasses import dataclass

OPTION = "--trust-file"


@dataclass(frozen=True)
class Untrusted:
    """Something in the options that is done for a trusted file alone."""

    location: tuple[str | int, ...]
    """Where it is in the options."""
    written: str
    """The flag, or the setting's name, as it is in the file."""
    why: str

    def sentence(self, file: str | None) -> str:
        """For the person who has the file."""
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.location)
        return f"{place.removeprefix('.')}: '{self.written}' {self.why}; {how_to_trust(file)}"


def how_to_trust(file: str | None) -> str:
    """What to do, as the end of a sentence."""
    named = file or "FILE"
    return (
        f"if you trust whoever wrote {'this file' if file else 'it'} with your account, add {OPTION} {named} "
        "(docs/security.md, 'What a file may do')"
    )

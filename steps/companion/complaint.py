"""What a check says when a promise is broken."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Complaint:
    """What is wrong, where, and how to put it right."""

    where: str
    what: str
    how: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" ({self.how})" if self.how else "")

"""The number of a step: a topic, and a letter where the topic has several lessons."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"(?:steps[/\\])?(?:step ?)?(\d{1,9})([a-z]?)(?:\.py)?", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class Number:
    """07, 54a, 54b: sorted by topic, then by part. A topic with one lesson has no letter."""

    topic: int
    part: str = ""

    def __str__(self) -> str:
        return f"{self.topic:02d}{self.part}"

    @property
    def short(self) -> str:
        """The number without a leading zero, as people type it."""
        return f"{self.topic}{self.part}"

    @classmethod
    def parse(cls, text: object) -> Number:
        """The number that an integer or a text names: 7, "54a", "step54a.py", "steps/step54a.py".

        Raises:
            ValueError: the value does not name a step.
        """
        if isinstance(text, Number):
            return text
        if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
            return cls(text)
        if isinstance(text, str) and (match := _NUMBER.fullmatch(text)):
            return cls(int(match[1]), match[2].lower())
        raise ValueError(f"{text!r} does not name a step")


def listed(numbers, word: str = "and") -> str:
    """ "2, 4 and 54a", each number as people type it."""
    *most, last = [number.short for number in numbers]
    return f"{', '.join(most)} {word} {last}" if most else last

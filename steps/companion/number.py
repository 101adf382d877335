"""The name of a step: a number on the main road, 54b, or a run in depth and two digits, conv07."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MAIN = re.compile(r"(?:steps[/\\])?(?:step ?)?(\d{1,9})([a-z]?)(?:\.py)?", re.IGNORECASE)
_DEPTH = re.compile(
    r"(?:steps[/\\])?(?:depth[/\\])?(?:step )?([a-z]+)(\d\d)(?:\.py)?", re.IGNORECASE
)


@dataclass(frozen=True)
class Number:
    """07, 54a, 54b: a topic, and a part where the topic has several lessons. conv07: a run, and
    its seventh step.

    Numbers have no order of their own: `curriculum.toml` says which step follows which.
    """

    topic: int
    part: str = ""
    run: str = ""

    def __str__(self) -> str:
        return f"{self.run}{self.topic:02d}{self.part}"

    @property
    def short(self) -> str:
        """The number without a leading zero, as people type it; conv07 keeps its two digits."""
        return str(self) if self.run else f"{self.topic}{self.part}"

    @property
    def file(self) -> str:
        """Its file in the folder of the steps: "step54b.py", "depth/conv07.py"."""
        return f"depth/{self}.py" if self.run else f"step{self}.py"

    @classmethod
    def parse(cls, text: object) -> Number:
        """The number that an integer or a text names: 7, "54a", "steps/step54a.py", "conv07",
        "steps/depth/conv07.py".

        Raises:
            ValueError: the value does not name a step.
        """
        if isinstance(text, Number):
            return text
        if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
            return cls(text)
        if isinstance(text, str) and (match := _MAIN.fullmatch(text)):
            return cls(int(match[1]), match[2].lower())
        if isinstance(text, str) and (match := _DEPTH.fullmatch(text)):
            return cls(int(match[2]), run=match[1].lower())
        raise ValueError(f"{text!r} does not name a step")


def listed(numbers, word: str = "and") -> str:
    """ "2, 4 and 54a", each number as people type it."""
    *most, last = [number.short for number in numbers]
    return f"{', '.join(most)} {word} {last}" if most else last

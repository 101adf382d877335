"""The order of the steps. They are read along the main road, then run by run; and each begins where
another one ended: the step before it, or the one that `from` names."""

from __future__ import annotations

from itertools import pairwise

from .model import CurriculumError
from .number import Number


class Roads:
    """Some steps, the order in which they are read, and the tree that grows from the first.

    `runs` are the names of the runs in depth, in order. `origins` holds what `from` says. A step
    without it begins at the step before, on the main road or in its run.
    """

    def __init__(self, numbers, runs, origins: dict[Number, Number]):
        self._runs = {name: position for position, name in enumerate(runs, 1)}
        self.numbers: list[Number] = sorted(set(numbers), key=self.key)
        self._defaults = defaults(self.numbers)
        self.before: dict[Number, Number | None] = {}
        for number in self.numbers:
            self.before[number] = origin = origins.get(number) or self.default(number)
            if origin is None and number.run:
                raise CurriculumError(
                    f"steps/curriculum.toml: {number.short} is the first step of its run. "
                    f'Say from where it starts: [step.{number}] from = "40b"'
                )
            if origin is not None and origin not in self._defaults:
                raise CurriculumError(
                    f"steps/curriculum.toml: [step.{number}] from: there is no step {origin.short}"
                )
        self._require_no_circle()
        self.children: dict[Number | None, list[Number]] = {}
        for number in self.numbers:
            self.children.setdefault(self.before[number], []).append(number)
        self._place = {number: n for n, number in enumerate(self.later())}
        self._size = dict.fromkeys(self.numbers, 1)  # of the tree that grows from a step
        for number in reversed(self._place):
            if origin := self.before[number]:
                self._size[origin] += self._size[number]

    def key(self, number: Number):
        """What sorts the numbers in the order of reading, also those of steps to come."""
        last = len(self._runs) + 1  # of a run that is not listed
        return self._runs.get(number.run, last) if number.run else 0, number.topic, number.part

    def default(self, number: Number) -> Number | None:
        """The step before a step on the main road or in its run, whatever `from` says."""
        return self._defaults[number]

    def chain(self, number: Number | None) -> list[Number]:
        """The steps that a step stands on, from the first of all to the step itself."""
        found = []
        while number is not None:
            found.append(number)
            number = self.before[number]
        return found[::-1]

    def later(self, number: Number | None = None) -> list[Number]:
        """The steps that descend from a step, each after the one that it begins at: all branches,
        those of the main road first. Without a step, all of them."""
        found = []
        waiting = self.children.get(number, [])[::-1]
        while waiting:
            found.append(waiting.pop())
            waiting += self.children.get(found[-1], [])[::-1]
        return found

    def stands_on(self, one: Number, other: Number) -> bool:
        """Whether a step descends from another one, however far."""
        if one not in self._place or other not in self._place:
            return False
        return 0 < self._place[one] - self._place[other] < self._size[other]

    def precedes(self, one: Number, other: Number) -> bool:
        """Whether a step is read before another one, or is one that the other stands on."""
        return self.key(one) < self.key(other) or self.stands_on(other, one)

    def in_order(self, numbers) -> list[Number]:
        """Numbers without repetition, in the order of reading, but each after those that it
        stands on."""
        found: list[Number] = []
        for number in sorted(set(numbers), key=self.key):
            above = (place for place, each in enumerate(found) if self.stands_on(each, number))
            found.insert(next(above, len(found)), number)
        return found

    def _require_no_circle(self):
        clear: set[Number | None] = {None}
        for start in self.numbers:
            path: dict[Number, None] = {}
            number = start
            while number not in clear:
                if number in path:
                    names = [each.short for each in path][list(path).index(number) :]
                    raise CurriculumError(
                        "steps/curriculum.toml: from goes in a circle: "
                        + " from ".join([*names, names[0]])
                    )
                path[number] = None
                number = self.before[number]
            clear.update(path)


def defaults(numbers: list[Number]) -> dict[Number, Number | None]:
    """For each number the one before it on the main road or in its run; they come in order."""
    found: dict[Number, Number | None] = dict.fromkeys(numbers)
    found |= {number: former for former, number in pairwise(numbers) if former.run == number.run}
    return found

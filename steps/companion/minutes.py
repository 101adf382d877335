"""How long a step takes to read, by one rule and never by hand."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from .complaint import Complaint
from .curriculum import Curriculum, Step
from .lookup import demo_of, text_of
from .names import with_renames

# Minutes for each word of the docstring, line that the difference adds or changes, line of the
# demo; and for the step itself.
WORD, ADDED, SHOWN, STEP = 1 / 180, 1 / 7, 1 / 10, 2
# First and last stage, and the hours that they may take; and those of the whole road.
HOURS = ((1, 10, 18), (11, 14, 11), (15, 18, 13))
ALL_HOURS = 42

_DOCSTRING = re.compile(r'\s*"""(.*?)"""', re.DOTALL)


def minutes(curriculum: Curriculum, step: Step) -> float:
    """The minutes that a step takes. Files are read line by line, since to parse them is slow."""
    if step.minutes is None:
        words, new, demo = _parts(step)
        before = curriculum.before(step)
        old = [with_renames(line, step.renames) for line in _parts(before)[1]] if before else []
        new = _added(old, new)
        for earlier in _taken_up(curriculum, step):
            new = _added(_parts(earlier)[1], new)
        step.minutes = WORD * len(words.split()) + ADDED * len(new) + SHOWN * len(demo) + STEP
    return step.minutes


def minutes_of(curriculum: Curriculum, steps: Iterable[Step]) -> float:
    return sum(minutes(curriculum, step) for step in steps)


def told(count: float) -> str:
    """ "4 min", "1 h 05 min"."""
    hours, rest = divmod(round(count), 60)
    return f"{hours} h {rest:02} min" if hours else f"{rest} min"


def check_hours(curriculum: Curriculum):
    """The main road takes no more hours than a person has."""
    road = [step for step in curriculum.steps if not step.run and step.stage]
    parts = [
        (f"stages {first} to {last}", hours, [s for s in road if first <= s.stage.number <= last])
        for first, last, hours in HOURS
    ]
    for name, hours, steps in [*parts, ("the main road", ALL_HOURS, road)]:
        if (taken := minutes_of(curriculum, steps)) > 60 * hours:
            how = "cut, or move something into depth"
            yield Complaint(name, f"{told(taken)} to read; at most {hours} h are allowed", how)


def _parts(step):
    """The docstring; the lines of the framework and those of the demo, without blank ones."""
    text = text_of(step)
    found = _DOCSTRING.match(text)
    begin, demo = found.end() if found else 0, demo_of(text)
    framework, below = text[begin:demo].splitlines(), text[demo:].splitlines()[1:]
    lines = [[line for line in part if line.strip()] for part in (framework, below)]
    return found[1] if found else "", *lines


def _taken_up(curriculum, step):
    """The last step, before the one that it begins at, that builds the same module, for each."""
    before = curriculum.before(step)
    modules = [m for m in curriculum.built_by(step) if before and before.number not in m.builders]
    chain = curriculum.roads.chain(before.number) if modules else []
    # Not a set: the order of its elements would change from run to run, and with it what counts.
    found = [next((n for n in reversed(chain) if n in m.builders), None) for m in modules]
    return [curriculum.by_number[n] for n in dict.fromkeys(found) if n is not None]


def _added(old, new):
    """The lines that are not there before. Most files are alike at both ends."""
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    a, b = old[first : len(old) - last], new[first : len(new) - last]
    changes = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return [line for kind, _, _, j1, j2 in changes if kind != "equal" for line in b[j1:j2]]

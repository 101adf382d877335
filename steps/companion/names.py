"""Names of definitions: through renamings, and the nearest to one that does not exist."""

from __future__ import annotations

import difflib
import re


def heir(name: str, renames: dict[str, str]) -> str:
    """What a name becomes under some renamings; a class takes its methods along."""
    owner, dot, member = name.partition(".")
    return renames.get(name) or renames.get(owner, owner) + dot + member


def with_renames(line: str, renames: dict[str, str]) -> str:
    """A line of code as it reads after some renamings of functions and classes."""
    for name, new_name in renames.items():
        if "." not in name:
            line = re.sub(rf"\b{re.escape(name)}\b", new_name, line)
    return line


def nearest(name: str, names, least: float = 0.0) -> str:
    """ " Did you mean ...?" with the names most like this one, whatever is upper or lower case.

    Names that are less alike than `least` (0 to 1) are not offered at all.
    """

    def likeness(each):
        pairs = ((name.lower(), each.lower()), (name, each))
        return [difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs]

    names = [each for each in names if likeness(each)[0] >= least]
    best = sorted(dict.fromkeys(names), key=likeness, reverse=True)[:3]
    close = [each for each in best if likeness(each)[0] >= 0.5]
    if close or not best:
        return f" Did you mean {' or '.join(close)}?" if close else ""
    return f" The nearest: {', '.join(best)}."

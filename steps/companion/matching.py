"""Whether a printed line is what was promised; promises.py has the rules."""

from __future__ import annotations

import re

_DECIMAL = re.compile(
    r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE][-+]?\d))(?:[eE][-+]?\d+)?(?![\w])(?!\.\d)"
)
_ANY_DECIMAL = r"([-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE][-+]?\d))(?:[eE][-+]?\d+)?)"


def matches(promised: str, printed: str) -> bool:
    """Whether a printed line is what was promised: text exactly, numbers to the digits shown."""
    promised, printed = promised.strip(), printed.strip()
    if promised == printed:
        return True
    pattern, numbers = [], []
    for part in re.split(r"(\.\.\.)", promised):
        if part == "...":
            pattern.append(".*?")
            continue
        end = 0
        for number in _DECIMAL.finditer(part):
            pattern += [re.escape(part[end : number.start()]), _ANY_DECIMAL]
            numbers.append(number[0])
            end = number.end()
        pattern.append(re.escape(part[end:]))
    found = re.fullmatch("".join(pattern), printed)
    return found is not None and all(map(_agrees, numbers, found.groups()))


def _agrees(promised: str, printed: str) -> bool:
    """Whether two decimal numbers agree to the digits that the first one shows."""
    wanted, value = float(promised), float(printed)
    if abs(value - wanted) <= 1e-15 * abs(wanted):
        return True
    mantissa, _, exponent = promised.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    if not digits and not exponent:
        return False  # NumPy writes "2." only for a whole number
    unit = 10.0 ** (int(exponent or 0) - digits)
    cut_off = abs(value) >= abs(wanted) and value * wanted > 0
    return abs(value - wanted) <= unit * (1 - 1e-9 if cut_off else 0.5 + 1e-9)

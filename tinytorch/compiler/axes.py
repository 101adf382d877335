"""The axes of loops: those of two arrays become one, also where one of them is reshaped."""

from collections.abc import Iterable


class Axis:
    """A dimension of a kernel's loops.

    parts: the axis that it was unified with, or the two axes that it was split into, as 6 is 2 x 3.
    """

    __slots__ = ("parts", "size")

    def __init__(self, size: int):
        self.size, self.parts = size, ()


def leaves(axes: Iterable[Axis]) -> list[Axis]:
    """The axes, each one that has parts replaced by its parts."""
    found, stack = [], [*axes][::-1]
    while stack:
        axis = stack.pop()
        if axis.parts:
            stack.extend(axis.parts[::-1])
        else:
            found.append(axis)
    return found


def unify(a: Iterable[Axis], b: Iterable[Axis], trail: list[Axis]) -> bool:
    """Makes two lists of axes equal: (6, 4) and (2, 12) are both (2, 3, 4). Returns False if they
    cannot be made equal; then some axes may be changed already.

    trail: collects the axes that were changed, for undo().
    """
    a, b = leaves(a)[::-1], leaves(b)[::-1]
    while a and b:
        x, y = a.pop(), b.pop()
        if x.parts or y.parts:  # an axis that has changed since
            a.extend(leaves([x])[::-1])
            b.extend(leaves([y])[::-1])
            continue
        if x is y:
            continue
        if x.size < y.size:
            x, y, a, b = y, x, b, a
        if x.size % y.size:
            return False
        trail.append(x)
        if x.size == y.size:
            x.parts = (y,)
        else:
            x.parts = (y, Axis(x.size // y.size))
            a.append(x.parts[1])
    return not a and not b


def undo(trail: list[Axis]) -> None:
    for axis in trail:
        axis.parts = ()

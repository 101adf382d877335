"""Step fuse01: Unification: the axes of two arrays become one list

Two operations can share a loop if they go over the same elements. Comparing shapes is not enough to
find out. Suppose a bias is added to [6, 4], the result is reshaped to [2, 12], and gelu follows.
Both operations go over 24 elements in the same order; only the boundaries differ:

    6 x 4      boundaries after 4, 8, 12, 16, 20        both:   2 x 3 x 4
    2 x 12     a boundary after 12

So each dimension is an object, an Axis. `unify` walks along two lists of axes. Where a longer axis
meets a shorter one, the longer one is split: 6 becomes 2 x 3, and 12 becomes 3 x 4. Where both have
the same length, they become one axis. A value keeps its Axis objects, so it sees every later split;
`leaves` returns the parts.

unify can fail: 4 does not divide 6. The list `trail` collects the axes that were changed, so `undo`
can restore them, and the caller goes on as if nothing had happened.

The trap: a matrix and its transpose. unify([a, b], [b, a]) makes a and b one axis, as if the loop
ran along the diagonal, and returns True. The caller must reject a list that contains an axis twice.

(PyTorch's compiler does this with symbols: sympy expressions for the ranges of loops.)

New: Axis, leaves, unify, undo.
Try: unify the axes of [4, 6] with those of [8, 3]. Which sizes do the leaves have?
"""

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


if __name__ == "__main__":
    six, four, two, twelve = map(Axis, (6, 4, 2, 12))
    trail = []
    print(unify([six, four], [two, twelve], trail))  # -> True
    print([axis.size for axis in leaves([six, four])])  # -> [2, 3, 4]
    print(leaves([six, four]) == leaves([two, twelve]))  # -> True
    undo(trail)
    print(leaves([six, four]) == [six, four])  # -> True

    # Four does not divide six; what was changed can be undone.
    print(unify([four, six], [Axis(6), Axis(4)], trail := []))  # -> False
    undo(trail)

    # Of one length: one axis, which is the same in other lists.
    n, m = Axis(5), Axis(5)
    print(
        unify([n], [m], []), leaves([n, six]) == [m, six], unify([n], [m], [])
    )  # -> True True True

    # Another size in all.
    print(unify([Axis(3)], [], []))  # -> False

    # A matrix and its transpose: one axis where two were.
    a, b = Axis(3), Axis(3)
    print(unify([a, b], [b, a], []), len(set(leaves([a, b]))))  # -> True 1

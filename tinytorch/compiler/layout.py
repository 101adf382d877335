"""Where the elements of a graph's values are: in memory of their own, or in that of another."""

import math
from typing import Any, NamedTuple

import numpy as np

from tinytorch.compiler.graph import VIEWS, Node, perform


class Layout(NamedTuple):
    """Where the elements of a value are, counted in elements.

    base: the node whose memory they are in; the node itself, unless it is a view.
    offset: of the first one. strides: to the next one of each dimension; 0 where that is of size 1.
    The base has its own elements in a row.
    """

    base: Node
    offset: int
    strides: tuple[int, ...]


class Layouts(dict):
    """Finds the Layout of each node once, when it is first asked for: layouts[node]."""

    def __missing__(self, node: Node) -> Layout:
        self[node] = Layout(node, 0, row_strides(node.shape))
        if node.op in VIEWS:
            base, offset, strides = self[node.args[0]]
            paper = np.empty(math.prod(base.shape), np.int8)  # never read or written
            memory = np.ndarray(node.args[0].shape, np.int8, paper, offset, strides)
            view = perform(np, node.op, (memory, *node.args[1:]), {})
            if np.may_share_memory(view, paper):  # else NumPy has to make a copy
                self[node] = Layout(base, address(view) - address(paper), strides_of(view))
        return self[node]


def row_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of elements that are in a row."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(0 if n == 1 else step)
        step *= n
    return tuple(strides[::-1])


def strides_of(array: np.ndarray) -> tuple[int, ...]:
    """The strides of an array of bytes, 0 for a dimension of size 1."""
    return tuple([0 if n == 1 else s for n, s in zip(array.shape, array.strides, strict=True)])


def address(array: Any) -> int:
    return array.__array_interface__["data"][0]

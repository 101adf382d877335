"""Step func06: Trees of lists, tuples and dicts

The parameters of a network come as a dict of tensors, a batch as a tuple, a state as a list in a
dict. A function that differentiates with respect to any of them would need a case for each form.

    {"w": a, "b": [c, (d,)]}     leaves  a, c, d      form  {"w": *, "b": [*, (*,)]}

A tree is taken apart into the list of its leaves and its form, and is put together again from other
leaves: from the gradients, say. Between the two there is only a list, as simple functions take it.
What is not a list, tuple or dict is a leaf, also a None. (PyTorch opens a defaultdict and a deque
too; here they are leaves.)

The trap is the number of leaves: with one leaf too many, the last tensor would be dropped without
notice. So another number is an error.

PyTorch's words: torch.utils._pytree, tree_flatten, tree_unflatten, tree_map. (The underscore says
that the place may change; many libraries use it nevertheless.)

New: TreeSpec, tree_flatten, tree_unflatten, tree_map, tree_map_only, tree_leaves.
Try: flatten a dict with its keys in another order, and unflatten the leaves with the first form.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class TreeSpec:
    """The form of a tree without its leaves. A leaf has no `type`.

    Attributes:
        type: list, tuple, dict, OrderedDict, or a named tuple.
        context: the keys of a dict.
        children: the forms of its items.
    """

    type: Any = None
    context: Any = None
    children: tuple = ()

    @property
    def num_leaves(self) -> int:
        return sum(child.num_leaves for child in self.children) if self.type else 1

    def unflatten(self, leaves: list) -> Any:
        return tree_unflatten(leaves, self)


def tree_flatten(tree: Any, is_leaf: Callable | None = None) -> tuple[list, TreeSpec]:
    """(leaves, form): a leaf is what is not a list, tuple or dict, or what `is_leaf` says."""
    kind, keys = type(tree), None
    named = isinstance(tree, tuple) and hasattr(kind, "_fields")
    if (is_leaf is not None and is_leaf(tree)) or not (
        named or kind in (list, tuple, dict, OrderedDict)
    ):
        return [tree], TreeSpec()
    if kind in (dict, OrderedDict):
        keys, tree = list(tree), tree.values()
    parts = [tree_flatten(item, is_leaf) for item in tree]
    return [leaf for part, _ in parts for leaf in part], TreeSpec(
        kind, keys, tuple(spec for _, spec in parts)
    )


def tree_unflatten(leaves: list, treespec: TreeSpec) -> Any:
    """The tree of this form with these leaves.

    Raises:
        ValueError: their number is another one.
    """
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"{treespec.num_leaves} leaves expected, and not {len(leaves)}")
    if treespec.type is None:
        return leaves[0]
    items = []
    for child in treespec.children:
        count = child.num_leaves
        items.append(tree_unflatten(leaves[:count], child))
        leaves = leaves[count:]
    if treespec.context is not None:
        return treespec.type(zip(treespec.context, items, strict=True))
    return treespec.type(*items) if hasattr(treespec.type, "_fields") else treespec.type(items)


def tree_map(func: Callable, tree: Any, *rests: Any, is_leaf: Callable | None = None) -> Any:
    """The tree with func(leaf) for each leaf; of several trees of one form, func(leaf, leaf)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_flatten(rest, is_leaf)[0] for rest in rests]
    return tree_unflatten([func(*each) for each in zip(leaves, *others, strict=True)], spec)


def tree_map_only(kind: Any, func: Callable, tree: Any) -> Any:
    """The tree with func(leaf) for each leaf of this type; the others stay."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kind) else leaf, tree)


def tree_leaves(tree: Any, is_leaf: Callable | None = None) -> list:
    """The leaves, in order."""
    return tree_flatten(tree, is_leaf)[0]


if __name__ == "__main__":
    from collections import namedtuple

    Point = namedtuple("Point", "x y")
    tree = {"w": 1, "b": [2, (3, None)], "p": Point(4, 5)}
    leaves, form = tree_flatten(tree)
    print(leaves, form.num_leaves)  # -> [1, 2, 3, None, 4, 5] 6
    print(tree_unflatten("abcdef", form))
    # -> {'w': 'a', 'b': ['b', ('c', 'd')], 'p': Point(x='e', y='f')}
    print(form.unflatten(leaves) == tree)  # -> True
    print(tree_map(lambda x, y: x + y, {"a": [1, 2]}, {"a": [10, 20]}))  # -> {'a': [11, 22]}
    print(tree_map_only(int, lambda x: -x, tree["b"]))  # -> [-2, (-3, None)]
    print(tree_leaves([(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple)))  # -> [(1, 2), 3]
    try:
        tree_unflatten([1, 2], form)
    except ValueError as error:
        print(error)  # -> 6 leaves expected, and not 2

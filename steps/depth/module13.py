"""Step module13: ModuleList in the package's dress: a whole list

Step 75a built ModuleList, with what a loop needs. A list of Python can do more, and Python supplies
most of it: a class that defines the five methods of MutableSequence inherits the others.

    defined      length, get, set, delete, insert    and append, extend, which return the list
    inherited    pop, remove, reverse, clear, index, in, +=

The names are the positions, and that is the trap: inserting or deleting a module shifts the names
of all modules after it. So insert and delete register all members again, in _set_all. (A state
saved before has the old names, as in PyTorch.)

Sequential is a list, too. ListContainer holds what both have in common, and Sequential keeps only
its forward.

Changed: Sequential is a ListContainer. New: ListContainer, ModuleList.
Try: put a tensor into the list. Which step refuses it?
"""

import importlib
from collections.abc import Iterable, Iterator, MutableSequence
from typing import Any

from tinytorch.core.tensor import tensor
from tinytorch.nn.modules.members import Members


def module_text(module: "Module", parts: list[tuple[str, str]]) -> str:
    """Name(...) with what the module shows of itself and, indented, its parts."""
    extra = module.extra_repr()
    lines = extra.split("\n") if extra else []
    if len(lines) == 1 and not parts:
        return f"{type(module).__name__}({extra})"
    lines += [f"({name}): " + text.replace("\n", "\n  ") for name, text in parts]
    inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
    return f"{type(module).__name__}({inside})"


class Module(Members):
    """A part of a network. A subclass makes its parameters and parts in `__init__`, after
    `super().__init__()`, and says in `forward` what it computes."""

    def requires_grad_(self, requires_grad: bool = True) -> "Module":
        """Freezes all parameters (False), or lets them learn again."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of all parameters: to None, or to zeros."""
        for param in self.parameters():
            if set_to_none:
                param.grad = None
            elif param.grad is not None:
                param.grad.detach_().zero_()

    # Its state, as names and values.

    def state_dict(self) -> dict:
        """All parameters and persistent buffers by name. They share the module's memory: clone
        what has to stay as it is."""
        state = {}
        for path, module in self.named_modules(remove_duplicate=False):
            for name, member in (module._parameters | module._buffers).items():
                if member is not None and name not in module._non_persistent:
                    state[f"{path}.{name}" if path else name] = member.detach()
        return state

    # Its text.

    def extra_repr(self) -> str:
        """What a subclass wants to show of itself between the brackets."""
        return ""

    def __repr__(self) -> str:
        return module_text(self, [(n, repr(module)) for n, module in self._modules.items()])

    # Its call, and the hooks around it.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. Every subclass defines it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


class ListContainer(Module, MutableSequence):
    """What lists of members have in common: the names "0", "1", ... and the methods of a list.

    The members are registered, as attributes would be; those of a plain Python list are not.
    Python's MutableSequence adds what follows from the methods here: pop, remove, reverse, +=.
    """

    def _set_all(self, members: list) -> None:
        """Replaces all members by these, under the names 0, 1, 2, ..."""
        self._modules.clear()
        self.extend(members)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._modules.values()))

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __setitem__(self, index: int, member: Any) -> None:
        name = list(self._modules)[index]
        self._register("_modules", name, member)

    def __delitem__(self, index: Any) -> None:
        members = list(self)
        del members[index]
        self._set_all(members)

    def insert(self, index: int, member: Any) -> "ListContainer":
        """Puts a member before the one at `index`."""
        members = list(self)
        members.insert(index, member)
        self._set_all(members)
        return self

    def append(self, member: Any) -> "ListContainer":
        """Adds a member at the end. Raises TypeError for what is not a module."""
        self._register("_modules", str(len(self)), member)
        return self

    def extend(self, members: Iterable[Any]) -> "ListContainer":
        """Adds members at the end. Raises TypeError for what cannot be iterated."""
        for member in list(members):
            self.append(member)
        return self


class Sequential(ListContainer):
    """Modules in a row: each gets what the one before it gives.

    Sequential(Linear(784, 128), ReLU(), Linear(128, 10))
    """

    def __init__(self, *modules: Any):
        super().__init__()
        self.extend(modules)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(ListContainer):
    """A list of modules, for a forward that goes through them in its own way."""

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        self.extend(() if modules is None else modules)


if __name__ == "__main__":
    from tinytorch.nn.parameter import Parameter

    # Importing the modules of the operations brings their methods to Tensor.
    for name in ("arithmetic", "comparison", "creation", "elementwise", "reduction"):
        importlib.import_module(f"tinytorch.ops.{name}")

    class Scale(Module):
        """y = factor * x."""

        def __init__(self, factor):
            super().__init__()
            self.factor = Parameter(tensor([factor]))

        def forward(self, x):
            return x * self.factor

        def extra_repr(self):
            return f"factor={self.factor.item()}"

    class Tanh(Module):
        def forward(self, x):
            return x.tanh()

    class Residual(Module):
        """Each block adds something to what it gets."""

        def __init__(self, kind):
            super().__init__()
            self.blocks = kind([Scale(0.5) for _ in range(3)])

        def forward(self, x):
            for block in self.blocks:
                x = x + block(x).tanh()
            return x

    x = tensor([[0.5]])
    for kind in (list, ModuleList):
        net = Residual(kind)
        print(f"{kind.__name__}: {net(x).item():.4f}, {len(list(net.parameters()))} parameters")
    # -> list: 1.6020, 0 parameters
    # -> ModuleList: 1.6020, 3 parameters

    # What a list can do, and the names that follow.
    blocks = net.blocks
    blocks.append(Scale(1.0)).insert(0, Tanh())
    print([f"{name}: {type(part).__name__}" for name, part in blocks.named_children()])
    # -> ['0: Tanh', '1: Scale', '2: Scale', '3: Scale', '4: Scale']
    blocks[0] = Scale(9.0)
    del blocks[1]
    blocks += [Tanh()]
    print(blocks.pop(), len(blocks), blocks[-1] in blocks)  # -> Tanh() 4 True
    blocks.reverse()
    print([name for name, _ in blocks.named_parameters()], [part.factor.item() for part in blocks])
    # -> ['0.factor', '1.factor', '2.factor', '3.factor'] [1.0, 0.5, 0.5, 9.0]

    # A row is a list, too.
    row = Sequential(Scale(2.0))
    row.extend([Tanh(), Scale(10.0)])
    print(f"{row(x).item():.6f}", len(row), len(ModuleList()))  # -> 7.615942 3 0

"""Step module07: Buffers in the package's dress

Step 52b built buffers: tensors that are saved and not learned. Here they are the third dictionary,
and `_named_members` is one walk for parameters and buffers.

                  listed by             optimizer    saved, and moved to a GPU
    parameter     named_parameters      yes          yes
    buffer        named_buffers         no           yes
    attribute     -                     no           no

Since its class does not mark a buffer, it is registered once, with register_buffer(name, tensor).
From then on an assignment to the name replaces it.

The trap: register_buffer comes first. `self.seen = tensor(0)` alone makes a plain attribute.

Changed: Members.__init__, named_parameters. New: register_buffer, named_buffers, buffers,
_named_members.
Try: in Counter write `self.seen = tensor(0)` instead of registering it.
"""

import importlib
from collections.abc import Iterator
from typing import Any

from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.parameter import Parameter


class Members:
    """What a module consists of: parameters, buffers and other modules, each under its name."""

    def __init__(self):
        # Into __dict__ directly: __setattr__ below relies on these.
        self.__dict__.update(_parameters={}, _buffers={}, _modules={})

    def _store_of(self, name: str) -> str | None:
        """Which of the three dictionaries has a member `name`."""
        for store in ("_parameters", "_modules", "_buffers"):
            if name in self.__dict__.get(store, ()):
                return store
        return None

    def __setattr__(self, name: str, value: Any) -> None:
        before = store = self._store_of(name)
        if isinstance(value, Parameter):
            store = "_parameters"
        elif isinstance(value, Members) and before != "_parameters":
            store = "_modules"
        if store is None:  # anything else, and a plain tensor too, is a plain attribute
            object.__setattr__(self, name, value)
            return
        if store != before:
            self.__dict__.pop(name, None)
            self.__dict__.get(before, {}).pop(name, None)
        self._register(store, name, value)

    def __getattr__(self, name: str) -> Any:
        # Called only for what is not a plain attribute: for each weight in each forward.
        members = self.__dict__
        for store in ("_parameters", "_modules", "_buffers"):
            if name in members.get(store, ()):
                return members[store][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        store = self._store_of(name)
        if store is None:
            object.__delattr__(self, name)
        else:
            del self.__dict__[store][name]

    def __dir__(self) -> list[str]:
        members = (*self._parameters, *self._buffers, *self._modules)
        return sorted({*super().__dir__(), *(name for name in members if not name[0].isdigit())})

    def _register(self, store: str, name: str, value: Any) -> None:
        """Adds a member.

        Raises:
            AttributeError: before Module.__init__ was called.
            KeyError: for an invalid or taken name.
            TypeError: for a value of the wrong type.
        """
        kinds = {"_parameters": Parameter, "_modules": Members, "_buffers": Tensor}
        kind, what = kinds[store], store[1:-1]
        if store not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name or not name:
            raise KeyError(f"{what} name can't contain \".\" or be empty, got '{name}'")
        # No hasattr(self, name): a subclass may look for it in a part that is not there yet.
        taken = name in self.__dict__ or hasattr(type(self), name) or self._store_of(name)
        if taken and name not in self.__dict__[store]:
            raise KeyError(f"attribute '{name}' already exists")
        if value is not None and not isinstance(value, kind):
            wrong = type(value).__name__
            raise TypeError(f"cannot assign '{wrong}' as {what} '{name}', which it is not")
        self.__dict__[store][name] = value

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Makes `param` the parameter `name`. None keeps the name, for an option not chosen."""
        self._register("_parameters", name, param)

    def register_buffer(self, name: str, tensor: Tensor | None) -> None:
        """A tensor that belongs to the state, moves along, and is not learned: a running mean."""
        self._register("_buffers", name, tensor)

    def register_module(self, name: str, module: "Members | None") -> None:
        """Makes `module` the part `name` of this module."""
        self._register("_modules", name, module)

    add_module = register_module

    def named_modules(
        self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, "Members"]]:
        """This module and all its parts, however deep: ("", self), ("encoder", ...),
        ("encoder.0", ...). A part that is used in two places comes once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                inner = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, inner, remove_duplicate)

    def _named_members(
        self, store: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen = {None}
        inside = self.named_modules(None, prefix, remove_duplicate)
        for path, module in inside if recurse else [(prefix, self)]:
            for name, member in module.__dict__[store].items():
                if member not in seen:
                    yield f"{path}.{name}" if path else name, member
                    if remove_duplicate:
                        seen.add(member)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """("encoder.0.weight", parameter), ... in the order of registration; tied ones once."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """What an optimizer wants: all parameters of this module and of its parts."""
        return (param for _, param in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers, with their names."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and of its parts."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))


class Module(Members):
    """A part of a network. A subclass makes its parameters and parts in `__init__`, after
    `super().__init__()`, and says in `forward` what it computes."""

    def zero_grad(self) -> None:
        """Clears the gradients of all parameters."""
        for param in self.parameters():
            param.grad = None

    def __repr__(self) -> str:
        parts = (f"({name}): {module!r}" for name, module in self._modules.items())
        lines = [text.replace("\n", "\n  ") for text in parts]
        inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        return f"{type(self).__name__}({inside})"

    # Its call, and the hooks around it.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. Every subclass defines it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


if __name__ == "__main__":
    # Importing the modules of the operations brings their methods to Tensor.
    for name in ("arithmetic", "elementwise", "matmul", "reduction"):
        importlib.import_module(f"tinytorch.ops.{name}")
    importlib.import_module("tinytorch.autograd.backward")

    class Linear(Module):
        """y = x w + b."""

        def __init__(self, weight=0.5):
            super().__init__()
            self.weight = Parameter(tensor([[weight]]))
            self.bias = Parameter(tensor([0.0]))

        def forward(self, x):
            return x @ self.weight + self.bias

    class Counter(Linear):
        """A Linear that counts the rows it has seen."""

        def __init__(self):
            super().__init__()
            self.lost = tensor(0)
            self.register_buffer("seen", tensor(0))
            self.register_buffer("last", None)

        def forward(self, x):
            self.lost, self.seen, self.last = self.lost + len(x), self.seen + len(x), x
            return super().forward(x)

    net = Module()
    net.front, net.back = Linear(), Counter()
    print([name for name, _ in net.named_buffers()])  # -> ['back.seen']
    net.back(net.front(tensor([[1.0], [2.0]])))
    print([name for name, _ in net.named_parameters()])
    # -> ['front.weight', 'front.bias', 'back.weight', 'back.bias']
    print([name for name, _ in net.named_buffers()], len(list(net.buffers())))
    # -> ['back.seen', 'back.last'] 2
    print(net.back.seen.item(), "seen" in vars(net.back), "seen" in dir(net.back))
    # -> 2 False True

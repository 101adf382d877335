"""Step 71g: A module knows its parameters

The network of step 65o kept its weights in a list, by hand. Leave one out, and there is no error:
the weight is used, gets a gradient, and never learns. A network of a hundred layers has hundreds of
them. So let each layer say for itself what there is to learn.

A Module is an object with a forward. What is new is one trick: Python calls `__setattr__` for each
`self.name = value`, and the module looks at the value. A Parameter goes into `_parameters`, another
Module into `_modules`; everything else becomes a plain attribute. (`_buffers` are for step 71n.)
Reading goes through `__getattr__`, which Python calls only for names that it does not find.

So a network becomes a tree of modules with parameters as its leaves. A walk through the tree finds
them all, and each name tells the path: "second.weight". `parameters()` is what a training loop
needs, and zero_grad() and requires_grad_() are loops over it. A parameter found in two places (tied
weights) is listed once: it is updated only once.

What is a Parameter (step 65o)? A tensor whose class says one thing more: to be learned. That is why
BadLinear in the demo fails. Its weight requires a gradient and gets one, but it is a plain tensor,
like any intermediate result, so the walk does not find it. There are two more ways to hide a
parameter. One is a plain Python list (step 71n has one that registers). The other is an attribute
set before `super().__init__()`, when there is nothing to register it in; that raises an error.

Call the module, not its forward: step 71u puts something in between. (PyTorch has both classes,
under the same names in torch.nn. `register_parameter` and `register_module` do by name what
assigning an attribute does.)

New: Members, which registers and finds; Module, which is called.
Try: make the weight of BadLinear a Parameter, and leave the rest as it is.
"""

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.parameter import Parameter


def look_up(named: Iterable[tuple[str, Any]], target: str, what: str) -> Any:
    """The member with the name `target`. Raises AttributeError where it is missing."""
    for name, member in named:
        if name == target:
            return member
    raise AttributeError(f"there is no {what} `{target}`")


class Members:
    """What a module consists of: parameters, buffers and other modules, each under its name."""

    def __init__(self):
        # Into __dict__ directly: __setattr__ below relies on these.
        self.__dict__.update(_parameters={}, _buffers={}, _modules={})
        self._non_persistent = set()  # the buffers that are not to be saved

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

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """A tensor that belongs to the state, moves along, and is not learned: a running mean.

        With persistent=False the state_dict leaves it out.
        """
        self._register("_buffers", name, tensor)
        (self._non_persistent.discard if persistent else self._non_persistent.add)(name)

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

    def modules(self, remove_duplicate: bool = True) -> Iterator["Members"]:
        """This module and all its parts, each once."""
        return (part for _, part in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, "Members"]]:
        """The parts one level below, with their names, each once."""
        seen = {None}
        for name, module in self._modules.items():
            if module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator["Members"]:
        """The parts one level below."""
        return (module for _, module in self.named_children())

    def get_submodule(self, target: str) -> "Members":
        """The part with the name "encoder.0"; "" is the module itself."""
        return look_up(self.named_modules(remove_duplicate=False), target, "module")

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with the name "encoder.0.weight"."""
        return look_up(self.named_parameters(remove_duplicate=False), target, "parameter")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with the name "norm.running_mean"."""
        return look_up(self.named_buffers(remove_duplicate=False), target, "buffer")


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

    # What is done to all of it.

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


if __name__ == "__main__":
    from tinytorch.autograd.modes import no_grad

    # Importing the modules of the operations brings their methods to Tensor.
    for name in ("arithmetic", "elementwise", "matmul", "reduction"):
        importlib.import_module(f"tinytorch.ops.{name}")
    importlib.import_module("tinytorch.autograd.engine")

    class BadLinear(Module):
        """y = x w: the weight is a plain tensor."""

        def __init__(self):
            super().__init__()
            self.weight = tensor([[0.5]], requires_grad=True)

        def forward(self, x):
            return x @ self.weight

    class GoodLinear(Module):
        """y = x w + b."""

        def __init__(self):
            super().__init__()
            self.weight = Parameter(tensor([[0.5]]))
            self.bias = Parameter(tensor([0.0]))

        def forward(self, x):
            return x @ self.weight + self.bias

    # Points on the line y = 3 x + 2, and a loop that knows nothing of the network inside.
    x = tensor([[-2.0], [-1.0], [0.0], [1.0], [2.0]])
    target = 3 * x + 2

    def train(model):
        for _ in range(100):
            loss = (model(x) - target).square().mean()
            loss.backward()
            with no_grad():
                for param in model.parameters():
                    param -= 0.1 * param.grad
            model.zero_grad()
        return loss.item()

    bad, good = BadLinear(), GoodLinear()
    print("BadLinear has", [name for name, _ in bad.named_parameters()])  # -> BadLinear has []
    print("GoodLinear has", [name for name, _ in good.named_parameters()])
    # -> GoodLinear has ['weight', 'bias']
    print(f"losses: {train(bad):.2f} and {train(good):.2f}")  # -> losses: 16.50 and 0.00
    print("bad: ", bad.weight.item(), "has not moved")  # -> bad:  0.5 has not moved
    print("but it had a gradient:", bad.weight.grad is not None)  # -> but it had a gradient: True
    print(f"good: {good.weight.item():.3f} x + {good.bias.item():.3f}")  # -> good: 3.000 x + 2.000
    print(good.bias)
    # -> Parameter containing:
    # -> tensor([2.0000], requires_grad=True)

    print("frozen:", not good.requires_grad_(False)(x).requires_grad)  # -> frozen: True

    # A tree of modules.
    class Two(Module):
        def __init__(self):
            super().__init__()
            self.first = GoodLinear()
            self.second = GoodLinear()
            self.second.bias = self.first.bias  # tied
            self.hidden_from_all = [GoodLinear()]

    two = Two()
    print([name for name, _ in two.named_modules()])  # -> ['', 'first', 'second']
    print([name for name, _ in two.named_parameters()])
    # -> ['first.weight', 'first.bias', 'second.weight']
    print(two)
    # -> Two(
    # ->   (first): GoodLinear()
    # ->   (second): GoodLinear()
    # -> )
    print("both biases are one:", two.first.bias is two.second.bias)  # -> both biases are one: True

    two.register_parameter("scale", Parameter(tensor([1.0])))
    two.register_module("third", GoodLinear())
    print([name for name, _ in two.named_parameters()])
    # -> ['scale', 'first.weight', 'first.bias', 'second.weight', 'third.weight', 'third.bias']
    print(two.third is list(two.children())[2], two.scale.item())  # -> True 1.0
    print(two.get_parameter("third.bias") is two.third.bias)  # -> True

    # What is refused.
    class TooEarly(Module):
        def __init__(self):
            self.weight = Parameter(tensor([1.0]))
            super().__init__()

    for mistake in (
        lambda: TooEarly(),
        lambda: setattr(good, "weight", tensor([[1.0]])),
        lambda: good.register_parameter("a.b", None),
        lambda: good.nothing,
    ):
        try:
            mistake()
        except (AttributeError, TypeError, KeyError) as error:
            print(f"{type(error).__name__}: {error.args[0]}")
    # -> AttributeError: cannot assign parameter before Module.__init__() call
    # -> TypeError: cannot assign 'Tensor' as parameter 'weight', which it is not
    # -> KeyError: parameter name can't contain "." or be empty, got 'a.b'
    # -> AttributeError: 'GoodLinear' object has no attribute 'nothing'

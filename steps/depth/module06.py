"""Step module06: Registering members: checks and errors

Some mistakes pass without an error, or raise one about something else. At the end of step module05
`line.weight = tensor(...)` puts a plain tensor among the parameters, and an optimizer finds it
there. A parameter that is set before `super().__init__()` finds no dictionary, and the message is a
KeyError about '_parameters'. And a name with a dot in it, "a.b", would look like the parameter b
of a part a.

So all members pass through one method, _register, which checks five things:

    the dictionaries are there      cannot assign parameter before Module.__init__() call
    the name is a string            parameter name should be a string
    the name has no dot             parameter name can't contain "."
    the name is free                attribute 'forward' already exists
    the value has the right type    cannot assign 'Tensor' as parameter 'weight'

register_parameter and register_module call it directly, for names that a program computes. The
value None reserves the name, for example of a bias that a layer was created without.

A module may not take a parameter's place: __setattr__ leaves `store` as it is, and the type check
refuses the value. (A parameter may take a module's place, as in step module05. PyTorch does the
same.)

The trap is how to check that a name is free. `hasattr(self, name)` would call __getattr__, which a
subclass may override to look in a part that does not exist yet. So we look in the dictionaries and
in the class.

Changed: Members.__setattr__. New: _register, register_parameter, register_module; Module.forward.
Try: leave out the check of the name, and register a parameter "forward". What happens at a call?
"""

import importlib
from collections.abc import Iterator
from typing import Any

from tinytorch.core.tensor import tensor
from tinytorch.nn.parameter import Parameter


class Members:
    """What a module consists of: parameters and other modules, each under its name."""

    def __init__(self):
        # Into __dict__ directly: __setattr__ below relies on these.
        self.__dict__.update(_parameters={}, _modules={})

    def _store_of(self, name: str) -> str | None:
        """Which of the two dictionaries has a member `name`."""
        for store in ("_parameters", "_modules"):
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
        for store in ("_parameters", "_modules"):
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
        members = (*self._parameters, *self._modules)
        return sorted({*super().__dir__(), *(name for name in members if not name[0].isdigit())})

    def _register(self, store: str, name: str, value: Any) -> None:
        """Adds a member.

        Raises:
            AttributeError: before Module.__init__ was called.
            KeyError: for an invalid or taken name.
            TypeError: for a value of the wrong type.
        """
        kinds = {"_parameters": Parameter, "_modules": Members}
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

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """("encoder.0.weight", parameter), ... in the order of registration; tied ones once."""
        seen = {None}
        inside = self.named_modules(None, prefix, remove_duplicate)
        for path, module in inside if recurse else [(prefix, self)]:
            for name, param in module._parameters.items():
                if param not in seen:
                    yield f"{path}.{name}" if path else name, param
                    if remove_duplicate:
                        seen.add(param)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """What an optimizer wants: all parameters of this module and of its parts."""
        return (param for _, param in self.named_parameters(recurse=recurse))


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

    line = Linear()

    class TooEarly(Module):
        def __init__(self):
            self.weight = Parameter(tensor([1.0]))
            super().__init__()

    def refused(*mistakes):
        for mistake in mistakes:
            try:
                mistake()
            except (AttributeError, TypeError, KeyError, NotImplementedError) as error:
                print(f"{type(error).__name__}: {error.args[0]}")

    refused(
        lambda: TooEarly(),
        lambda: setattr(line, "weight", tensor([[1.0]])),
        lambda: setattr(line, "weight", Linear()),
        lambda: line.register_parameter(0, None),
        lambda: line.register_parameter("a.b", None),
        lambda: line.register_parameter("forward", None),
        lambda: line.register_module("scale", tensor(1.0)),
        lambda: Module()(1),
    )
    # -> AttributeError: cannot assign parameter before Module.__init__() call
    # -> TypeError: cannot assign 'Tensor' as parameter 'weight', which it is not
    # -> TypeError: cannot assign 'Linear' as parameter 'weight', which it is not
    # -> TypeError: parameter name should be a string. Got int
    # -> KeyError: parameter name can't contain "." or be empty, got 'a.b'
    # -> KeyError: attribute 'forward' already exists
    # -> TypeError: cannot assign 'Tensor' as module 'scale', which it is not
    # -> NotImplementedError: Module [Module] is missing the required "forward" function

    # By name: what a program computes, and an option that was not chosen.
    net = Module()
    for number in range(3):
        net.register_module(f"layer{number}", Linear())
    net.register_parameter("scale", None)
    print(len(list(net.parameters())), net.scale, net._parameters)  # -> 6 None {'scale': None}
    net.scale = Parameter(tensor([2.0]))
    print([name for name, _ in net.named_parameters()][:3])
    # -> ['scale', 'layer0.weight', 'layer0.bias']

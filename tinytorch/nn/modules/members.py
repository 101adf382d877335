"""What a module consists of: how it registers its members, and finds them again."""

from collections.abc import Iterable, Iterator
from typing import Any

from tinytorch.core.tensor import Tensor
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

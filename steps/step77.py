"""Step 77: Modules that hold modules, and those who look on

A residual network has, say, twelve equal blocks. As attributes block1 ... block12 nobody wants to
write them, and a Python list hides them (step 76). So there are lists that register:

    Sequential    a row of modules, called one after the other; needs no forward of yours
    ModuleList    a list; your forward says how to go through it
    ModuleDict    modules by name; your forward chooses

What a list can do comes from Python: whoever defines the five methods of MutableSequence (length,
get, set, delete, insert) is given pop, remove, reverse and += by it. MutableMapping does the same
for dictionaries. (ParameterList is there too, for loose parameters.)

Now, why call the module and not its forward? Because there is a place to stand in between. A hook
is a function of yours that is called there, with no line of the network changed:

    register_forward_pre_hook(hook)      hook(module, args), before forward; may replace args
    register_forward_hook(hook)          hook(module, args, output), after it; may replace output
    register_full_backward_hook(hook)    hook(module, grad_input, grad_output), on the way back

Each returns a handle; handle.remove() takes the hook away again. Without hooks it costs one test.

A forward hook runs after forward, not on the way back. To see gradients, a module with backward
hooks leads its inputs and its outputs through a Gate: a Function that changes nothing on the way
there. On the way back the gate of the outputs sees what arrives, the gate of the inputs what
leaves. The first layer gets data that need no gradient: there is nothing to wait for at its inputs,
and the hook is called with None for them.

Changed: Module.__init__, Module.__call__. New: Gate, the three kinds of hooks; Sequential,
ModuleList, ModuleDict, ParameterList and what they share.
Try: before the last line, give row[1] a forward hook that returns `output * 0`. Which gradients are
left?
"""

import importlib
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence
from itertools import groupby
from typing import Any

from tinytorch.autograd.engine import Hooks, RemovableHandle
from tinytorch.autograd.modes import thread
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.parameter import Parameter


class Gate(Function):
    """Passes tensors on unchanged. On the way back `watch` sees all their gradients at once, at
    their `places` among n values, and answers with those that go on."""

    on_tensors = True
    plain = False
    fill_missing = False

    def forward(ctx, watch: Callable, places: list[int], n: int, *arrays: Any) -> Any:
        ctx.watch, ctx.places, ctx.n = watch, places, n
        return arrays if len(arrays) > 1 else arrays[0]

    def backward(ctx, *grads: Any) -> tuple:
        given = dict(zip(ctx.places, grads, strict=True))
        answer = ctx.watch(tuple(given.get(place) for place in range(ctx.n)))
        return (None, None, None, *(answer[place] for place in ctx.places))


def make_tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def through_gate(values: tuple, watch: Callable[[tuple], tuple]) -> tuple:
    """The values; those that require a gradient have passed a gate."""
    places = [i for i, x in enumerate(values) if isinstance(x, Tensor) and x.requires_grad]
    if not places:
        return values
    passed = Gate.apply(watch, places, len(values), *(values[i] for i in places))
    passed = iter(make_tuple(passed))
    return tuple(next(passed) if i in places else x for i, x in enumerate(values))


def module_text(module: "Module", parts: list[tuple[str, str]]) -> str:
    """Name(...) with what the module shows of itself and, indented, its parts."""
    extra = module.extra_repr()
    lines = extra.split("\n") if extra else []
    if len(lines) == 1 and not parts:
        return f"{type(module).__name__}({extra})"
    lines += [f"({name}): " + text.replace("\n", "\n  ") for name, text in parts]
    inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
    return f"{type(module).__name__}({inside})"


class Module:
    """A part of a network. A subclass makes its parameters and parts in `__init__`, after
    `super().__init__()`, and says in `forward` what it computes."""

    def __init__(self):
        # Into __dict__ directly: __setattr__ below relies on these.
        self.__dict__.update(_parameters={}, _buffers={}, _modules={})
        self._forward_pre_hooks, self._forward_hooks = Hooks(), Hooks()
        self._backward_hooks = Hooks()

    # What a module consists of.

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
        elif isinstance(value, Module) and before != "_parameters":
            store = "_modules"
        if store is None:  # anything else, and a plain tensor too, is a plain attribute
            object.__setattr__(self, name, value)
            return
        if store != before:
            self.__dict__.pop(name, None)
            self.__dict__.get(before, {}).pop(name, None)
        self._register(store, name, value)

    def __getattr__(self, name: str) -> Any:
        # Called only for what is no plain attribute.
        store = self._store_of(name)
        if store is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return self.__dict__[store][name]

    def _register(self, store: str, name: str, value: Any) -> None:
        """Adds a member. AttributeError, TypeError or KeyError where name or value are none."""
        kinds = {"_parameters": Parameter, "_modules": Module, "_buffers": Tensor}
        kind, what = kinds[store], store[1:-1]
        if store not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
        if "." in name or not name:
            raise KeyError(f"{what} name can't contain \".\" or be empty, got '{name}'")
        if hasattr(self, name) and name not in self.__dict__[store]:
            raise KeyError(f"attribute '{name}' already exists")
        if value is not None and not isinstance(value, kind):
            wrong = type(value).__name__
            raise TypeError(f"cannot assign '{wrong}' as {what} '{name}': no {kind.__name__}")
        self.__dict__[store][name] = value

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Makes `param` the parameter `name`. None keeps the name, for an option not chosen."""
        self._register("_parameters", name, param)

    def register_module(self, name: str, module: "Module | None") -> None:
        """Makes `module` the part `name` of this module."""
        self._register("_modules", name, module)

    def named_modules(
        self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, "Module"]]:
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

    def modules(self) -> Iterator["Module"]:
        """This module and all its parts, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, "Module"]]:
        """The parts one level below, with their names, each once."""
        seen = {None}
        for name, module in self._modules.items():
            if module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator["Module"]:
        """The parts one level below."""
        return (module for _, module in self.named_children())

    # Its text.

    def extra_repr(self) -> str:
        """What a subclass wants to show of itself between the brackets."""
        return ""

    def __repr__(self) -> str:
        return module_text(self, [(n, repr(module)) for n, module in self._modules.items()])

    # Its call, and those who watch it.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes: every subclass says it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def _call_with_hooks(self, args: tuple, kwargs: dict) -> Any:
        for hook in list(self._forward_pre_hooks.values()):
            answer = hook(self, args)
            args = args if answer is None else make_tuple(answer)
        grad_output: list = []  # the gradients of the outputs, until those of the inputs are known
        known_at_inputs = False

        def at_outputs(grads: tuple) -> tuple:
            grad_output.append(grads)
            if not known_at_inputs:  # none will arrive there
                at_inputs((None,) * len(args))
            return grads

        def at_inputs(grads: tuple) -> tuple:
            arrived = grad_output.pop()
            for hook in list(self._backward_hooks.values()):
                answer = hook(self, grads, arrived)
                grads = grads if answer is None else make_tuple(answer)
            return grads

        watched = self._backward_hooks and thread.grad_enabled
        if watched:
            before, args = args, through_gate(args, at_inputs)
            known_at_inputs = args is not before
        output = self.forward(*args, **kwargs)
        for hook in list(self._forward_hooks.values()):
            answer = hook(self, args, output)
            output = output if answer is None else answer
        if not watched:
            return output
        passed = through_gate(make_tuple(output), at_outputs)
        return passed if isinstance(output, tuple) else passed[0]

    def register_forward_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls hook(module, args) before each forward; what it returns takes the place of args."""
        return self._forward_pre_hooks.add(hook)

    def register_forward_hook(self, hook: Callable) -> RemovableHandle:
        """Calls hook(module, args, output) after each forward; what it returns is the output."""
        return self._forward_hooks.add(hook)

    def register_full_backward_hook(self, hook: Callable) -> RemovableHandle:
        """Calls hook(module, grad_input, grad_output) when the gradients of the inputs are known.

        Both are tuples, with None where there is no gradient; what the hook returns takes the
        place of grad_input. A forward hook, in contrast, runs after forward and sees no gradient.
        """
        return self._backward_hooks.add(hook)


class Numbered(Module, MutableSequence):
    """What lists of members have in common: the names "0", "1", ... and the methods of a list.

    The members are registered, as attributes would be; those of a plain Python list are not.
    Python's MutableSequence adds what follows from the methods here: pop, remove, reverse, +=.
    """

    store = "_modules"

    def _set_all(self, members: list) -> None:
        """Replaces all members by these, under the names 0, 1, 2, ..."""
        self.__dict__[self.store].clear()
        self.extend(members)

    def _check_index(self, index: Any) -> int:
        """`index`, counted from the front. IndexError outside."""
        index, n = operator.index(index), len(self)
        if not -n <= index < n:
            raise IndexError(f"index {index} is out of range")
        return index % n

    def __len__(self) -> int:
        return len(self.__dict__[self.store])

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.__dict__[self.store].values()))

    def __getitem__(self, index: Any) -> Any:
        """The member at `index`; for a slice, a module of the same kind with those members."""
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return list(self)[self._check_index(index)]

    def __setitem__(self, index: int, member: Any) -> None:
        name = list(self.__dict__[self.store])[self._check_index(index)]
        self._register(self.store, name, member)

    def __delitem__(self, index: Any) -> None:
        members = list(self)
        del members[index if isinstance(index, slice) else self._check_index(index)]
        self._set_all(members)

    def insert(self, index: int, member: Any) -> "Numbered":
        """Puts a member before the one at `index`."""
        members = list(self)
        members.insert(index, member)
        self._set_all(members)
        return self

    def append(self, member: Any) -> "Numbered":
        """Adds a member at the end. TypeError for what is none."""
        self._register(self.store, str(len(self)), member)
        return self

    def extend(self, members: Iterable[Any]) -> "Numbered":
        """Adds members at the end. TypeError for what cannot be iterated."""
        for member in list(members):
            self.append(member)
        return self


class Sequential(Numbered):
    """Modules in a row: each gets what the one before it gives. The arguments are modules, or one
    OrderedDict of modules by name.

        Sequential(Linear(784, 128), ReLU(), Linear(128, 10))
    """

    def __init__(self, *modules: Any):
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], OrderedDict):
            for name, module in modules[0].items():
                self.register_module(name, module)
        else:
            self.extend(modules)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return super().__getitem__(index)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(Numbered):
    """A list of modules, for a forward that goes through them in its own way."""

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        self.extend(() if modules is None else modules)

    def __repr__(self) -> str:
        parts = []  # equal neighbours share a line: (0-2): 3 x Linear(...)
        for text, equal in groupby(enumerate(map(repr, self)), key=operator.itemgetter(1)):
            first, *rest = [number for number, _ in equal]
            several = (f"{first}-{rest[-1]}", f"{len(rest) + 1} x {text}") if rest else None
            parts.append(several or (str(first), text))
        return module_text(self, parts)


class ParameterList(Numbered):
    """A list of parameters. Plain tensors become parameters."""

    store = "_parameters"

    def __init__(self, values: Iterable[Tensor] | None = None):
        super().__init__()
        self.extend(() if values is None else values)

    def _register(self, store: str, name: str, value: Any) -> None:
        plain = isinstance(value, Tensor) and not isinstance(value, Parameter)
        super()._register(store, name, Parameter(value) if plain else value)

    def extra_repr(self) -> str:
        lines = []
        for number, param in enumerate(self):
            size = "x".join(map(str, param.shape))
            lines.append(f"({number}): Parameter containing: [{param.dtype!r} of size {size}]")
        return "\n".join(lines)


class ModuleDict(Module, MutableMapping):
    """Modules by name, for a forward that chooses among them. It has the methods of a dict."""

    # A Mapping compares by content and so cannot be a key; a module is told apart by who it is.
    __eq__, __hash__ = object.__eq__, object.__hash__

    def __init__(self, modules: Any = None):
        super().__init__()
        self.update({} if modules is None else modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.register_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)


if __name__ == "__main__":
    # Importing the modules of the operations brings their methods to Tensor.
    for name in ("arithmetic", "elementwise", "matmul", "reduction"):
        importlib.import_module(f"tinytorch.ops.{name}")
    importlib.import_module("tinytorch.core.printing")

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

    # A row.
    row = Sequential(Scale(2.0), Tanh(), Scale(10.0))
    x = tensor([[0.5]])
    print(f"{row(x).item():.6f} = {row[2](row[1](row[0](x))).item():.6f}")
    # -> 7.615942 = 7.615942
    print(row)
    # -> Sequential(
    # ->   (0): Scale(factor=2.0)
    # ->   (1): Tanh()
    # ->   (2): Scale(factor=10.0)
    # -> )
    print(row[:2](x).shape, len(row), [name for name, _ in row.named_parameters()])
    # -> tinytorch.Size([1, 1]) 3 ['0.factor', '2.factor']

    # A residual stack: each block adds something to what it gets.
    class Residual(Module):
        def __init__(self, depth):
            super().__init__()
            self.blocks = ModuleList([Scale(0.5) for _ in range(depth)])

        def forward(self, x):
            for block in self.blocks:
                x = x + block(x).tanh()
            return x

    stack = Residual(3)
    print(len(list(stack.parameters())), "parameters;", f"{stack(x).item():.4f}")
    # -> 3 parameters; 1.6020
    print(stack)
    # -> Residual(
    # ->   (blocks): ModuleList(
    # ->     (0-2): 3 x Scale(factor=0.5)
    # ->   )
    # -> )
    stack.blocks.append(Scale(1.0))
    stack.blocks.insert(0, Tanh())
    print([name for name, _ in stack.blocks.named_children()])  # -> ['0', '1', '2', '3', '4']

    # A switch.
    class Switch(Module):
        def __init__(self):
            super().__init__()
            self.kinds = ModuleDict({"tanh": Tanh(), "twice": Scale(2.0)})

        def forward(self, x, kind):
            return self.kinds[kind](x)

    switch = Switch()
    print(f"{switch(x, 'tanh').item():.4f}", switch(x, "twice").item(), list(switch.kinds))
    # -> 0.4621 1.0 ['tanh', 'twice']

    # Loose parameters.
    loose = ParameterList([tensor([1.0]), tensor([[2.0, 3.0]])])
    print([(name, list(param.shape)) for name, param in loose.named_parameters()])
    # -> [('0', [1]), ('1', [1, 2])]

    # Hooks.
    def shapes(module, args, output):
        name = type(module).__name__
        print(f"{name}: {list(args[0].shape)} -> {list(output.shape)}, {output.item():.4f}")

    handles = [part.register_forward_hook(shapes) for part in row]
    row(x)
    # -> Scale: [1, 1] -> [1, 1], 1.0000
    # -> Tanh: [1, 1] -> [1, 1], 0.7616
    # -> Scale: [1, 1] -> [1, 1], 7.6159
    for handle in handles:
        handle.remove()
    row(x)  # silence
    with row.register_forward_pre_hook(lambda module, args: args[0] * 0):
        print("a hook has replaced the input:", row(x).item())
        # -> a hook has replaced the input: 0.0

    def gradients(module, grad_input, grad_output):
        entered = None if grad_input[0] is None else round(grad_input[0].item(), 4)
        print(f"{type(module).__name__}: {grad_output[0].item():.4f} in, {entered} out")

    handles = [part.register_full_backward_hook(gradients) for part in row]
    row(x).backward()
    # -> Scale: 1.0000 in, 10.0 out
    # -> Tanh: 10.0000 in, 4.1997 out
    # -> Scale: 4.1997 in, None out

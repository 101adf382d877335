"""Step 78: What is done to a whole network

A walk through the tree finds the parameters. The same walk serves for everything else that concerns
a network as a whole, and each of it is a short method now:

    train(), eval()           tell every part whether it is being trained or used (step 79 needs it)
    requires_grad_(False)     freezes all parameters
    apply(fn)                 calls fn with each part: the usual way to initialise
    to(device), double()      moves all parameters, their gradients, and the buffers
    state_dict()              all values by name; load_state_dict() puts them back

Some of what a layer knows is not learned and yet belongs to it: a running mean, a mask. That is a
buffer. It moves along and is saved, but no optimizer sees it. A plain tensor becomes one only by
`register_buffer`; with persistent=False it moves along and is not saved.

Two traps. `x.to(device)` of a tensor returns a new tensor, `net.to(device)` of a module changes the
module: the same Parameter objects hold new data. Were they new objects, an optimizer that was made
before would go on changing the old ones. And a state_dict shows the memory of the network. It is no
copy: train on, and the state that you wanted to keep for later changes along. Clone it.

load_state_dict compares names before it believes anything. What is missing, what is too much, and
every shape that differs: all is told at once, not one per attempt. With strict=False it takes what
fits by name and answers with what did not. (The names are PyTorch's for the same layers, so a
state_dict from there loads here, and the other way round.)

Changed: Module.__init__. Moved: Gate to tinytorch/nn/hooks.py, the lists and the dictionary to
tinytorch/nn/container.py. New: buffers; Module's methods from named_buffers to load_state_dict;
IncompatibleKeys.
Try: leave out `.clone()` where the demo makes its copy, and see which state is put back.
"""

import importlib
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tinytorch.autograd.engine import Hooks, RemovableHandle
from tinytorch.autograd.inplace import assign
from tinytorch.autograd.modes import no_grad, thread
from tinytorch.core.dtype import DType, bfloat16, float16, float32, float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.hooks import make_tuple, through_gate
from tinytorch.nn.parameter import Parameter


def look_up(named: Iterable[tuple[str, Any]], target: str, what: str) -> Any:
    """The member with the name `target`. AttributeError where there is none."""
    for name, member in named:
        if name == target:
            return member
    raise AttributeError(f"there is no {what} `{target}`")


def converter(dtype: DType) -> Callable[["Module"], "Module"]:
    """The method that makes all floats of a module `dtype`, such as module.double()."""
    return lambda self: self.to(dtype)


class IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What load_state_dict answers: names without a value, and values without a name."""

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()


def load_member(key: str, members: dict, name: str, value: Any, itself: bool) -> list[str]:
    """Copies `value` into a parameter or buffer, or puts it there `itself`. What is wrong, if
    something is, is the answer."""
    member = members[name]
    if not isinstance(value, Tensor):
        return [f'While copying the parameter named "{key}", expected Tensor, got {type(value)}']
    if value.shape != member.shape:
        return [
            f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
            f"the shape in current model is {member.shape}."
        ]
    if itself:
        learned = isinstance(member, Parameter)
        members[name] = Parameter(value, member.requires_grad) if learned else value
        return []
    with no_grad():
        assign(member, value.to(device=member.device, dtype=member.dtype))
    return []


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
    `super().__init__()`, and says in `forward` what it computes:

        class Scale(Module):
            def __init__(self):
                super().__init__()
                self.factor = Parameter(tensor(1.0))

            def forward(self, x):
                return x * self.factor

    Call the module, not its forward: the hooks are in between. Attributes that are Parameters or
    Modules are registered; `parameters()` finds them, however deep. A plain tensor is not.
    """

    training: bool

    def __init__(self):
        # Into __dict__ directly: __setattr__ below relies on these.
        self.__dict__.update(training=True, _parameters={}, _buffers={}, _modules={})
        self._non_persistent = set()  # the buffers that the state_dict leaves out
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

    def __delattr__(self, name: str) -> None:
        self.__dict__.get(self._store_of(name), self.__dict__).pop(name)

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

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """A tensor that belongs to the state, moves along, and is not learned: a running mean.

        With persistent=False the state_dict leaves it out.
        """
        self._register("_buffers", name, tensor)
        (self._non_persistent.discard if persistent else self._non_persistent.add)(name)

    def register_module(self, name: str, module: "Module | None") -> None:
        """Makes `module` the part `name` of this module."""
        self._register("_modules", name, module)

    add_module = register_module

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

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers, with their names."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and of its parts."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

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

    def get_submodule(self, target: str) -> "Module":
        """The part with the name "encoder.0"; "" is the module itself. AttributeError if none."""
        return look_up(self.named_modules(remove_duplicate=False), target, "module")

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with the name "encoder.0.weight". AttributeError where there is none."""
        return look_up(self.named_parameters(remove_duplicate=False), target, "parameter")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with the name "norm.running_mean". AttributeError where there is none."""
        return look_up(self.named_buffers(remove_duplicate=False), target, "buffer")

    # What is done to all of it.

    def apply(self, fn: Callable[["Module"], None]) -> "Module":
        """Calls fn with each part, the inner ones first, and with this module at last."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> "Module":
        """Tells this module and its parts that they are in training: Dropout drops only then."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> "Module":
        """The opposite of train(): the network is used, not trained."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> "Module":
        """Freezes all parameters (False), or lets them learn again."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of all parameters: to None, or to zeros."""
        for param in self.parameters():
            if set_to_none or param.grad is None:
                param.grad = None
            else:
                param.grad = param.grad.detach().zero_()

    def _convert(self, convert: Callable[[Tensor], Tensor]) -> "Module":
        """Replaces the data of each parameter, gradient and buffer. The parameters stay the same
        objects, so that an optimizer that has them goes on working."""
        with no_grad():
            for param in self.parameters():
                param.data = convert(param.data)
                if param.grad is not None:
                    param.grad = convert(param.grad.detach())
            for module in self.modules():
                for name, buffer in module._buffers.items():
                    module._buffers[name] = None if buffer is None else convert(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> "Module":
        """Moves the module to a device, or to a float type, with the arguments of Tensor.to.

        Unlike Tensor.to it changes the module itself. Integer buffers keep their type. TypeError
        for a type that is no float type.
        """

        def convert(t: Tensor) -> Tensor:
            moved = t.to(*args, **kwargs)
            if not t.is_floating_point():
                return t.to(moved.device)
            if not moved.is_floating_point():
                raise TypeError(f"Module.to only accepts floating point, not {moved.dtype!r}")
            return moved

        return self._convert(convert)

    float = converter(float32)
    double = converter(float64)
    half = converter(float16)
    bfloat16 = converter(bfloat16)

    def cpu(self) -> "Module":
        return self.to("cpu")

    def cuda(self, device: Any = None) -> "Module":
        return self.to("cuda" if device is None else device)

    # Its state, as names and values.

    def _named_state(self, prefix: str) -> Iterator[tuple[str, "Module", dict, str]]:
        """(full name, module, its parameters or buffers, name there) of all that is kept."""
        for path, module in self.named_modules(None, "", remove_duplicate=False):
            start = f"{prefix}{path}." if path else prefix
            for members in (module._parameters, module._buffers):
                for name, member in members.items():
                    if member is not None and name not in module._non_persistent:
                        yield start + name, module, members, name

    def state_dict(
        self, *, destination: dict | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Tensor]:
        """All parameters and persistent buffers by name. They show the module's memory: a copy
        that shall stay as it is has to be cloned. With keep_vars they are the parameters."""
        state = OrderedDict() if destination is None else destination
        for key, _, members, name in self._named_state(prefix):
            state[key] = members[name] if keep_vars else members[name].detach()
        return state

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copies the values of a state_dict into the parameters and buffers with the same names.

        With assign=True the tensors themselves take their place. RuntimeError that tells all
        missing and unexpected names (not with strict=False) and all shapes that differ.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        errors, missing, known = [], [], set()
        for key, _, members, name in self._named_state(""):
            known.add(key)
            if key not in state_dict:
                missing.append(key)
                continue
            errors += load_member(key, members, name, state_dict[key], assign)
        unexpected = [key for key in state_dict if key not in known]
        for keys, word in ((unexpected, "Unexpected"), (missing, "Missing")):
            if strict and keys:
                listed = ", ".join(f'"{key}"' for key in keys)
                errors.insert(0, f"{word} key(s) in state_dict: {listed}. ")
        if errors:
            start = f"Error(s) in loading state_dict for {type(self).__name__}:\n\t"
            raise RuntimeError(start + "\n\t".join(errors))
        return IncompatibleKeys(missing, unexpected)

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


if __name__ == "__main__":
    # Importing the modules of the operations brings their methods to Tensor.
    for name in ("arithmetic", "comparison", "creation", "elementwise", "reduction"):
        importlib.import_module(f"tinytorch.ops.{name}")
    importlib.import_module("tinytorch.core.printing")

    class Scale(Module):
        """y = factor * x, and counts how many rows it has seen."""

        def __init__(self):
            super().__init__()
            self.factor = Parameter(tensor([2.0]))
            self.register_buffer("seen", tensor(0))
            self.register_buffer("scratch", tensor([0.0]), persistent=False)

        def forward(self, x):
            if self.training:
                self.seen = self.seen + len(x)
            return x * self.factor

    class Two(Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Scale(), Scale()

        def forward(self, x):
            return self.b(self.a(x))

    net, x = Two(), tensor([[1.0], [2.0], [3.0]])
    print([name for name, _ in net.named_buffers()])
    # -> ['a.seen', 'a.scratch', 'b.seen', 'b.scratch']

    # Training or use.
    net(x)
    net.eval()
    net(x)
    print("seen", net.a.seen.item(), "rows in training")  # -> seen 3 rows in training
    print("each part knows:", net.training, net.b.training)  # -> each part knows: False False

    # To another type: the same parameters, with other data.
    factor = net.a.factor
    net.double()
    print(net.a.factor is factor, factor.dtype, net.a.seen.dtype)
    # -> True tinytorch.float64 tinytorch.int64
    print(net(x.double()).dtype)  # -> tinytorch.float64
    net.float()

    # Everything with one call.
    def start(part):
        if isinstance(part, Scale):
            part.factor.data.fill_(3.0)

    print("applied:", net.apply(start)(x).tolist())  # -> applied: [[9.0], [18.0], [27.0]]
    net.requires_grad_(False)
    print("frozen:", not net(x).requires_grad)  # -> frozen: True
    net.requires_grad_()
    net(x).sum().backward()
    print("gradient", net.a.factor.grad.item())  # -> gradient 18.0
    net.zero_grad()
    print("gradient", net.a.factor.grad)  # -> gradient None

    # The state.
    state = net.state_dict()
    print({name: value.tolist() for name, value in state.items()})
    # -> {'a.factor': [3.0], 'a.seen': 3, 'b.factor': [3.0], 'b.seen': 3}
    copy = {name: value.clone() for name, value in state.items()}
    net.a.factor.data.fill_(7.0)
    print("state_dict", state["a.factor"].item(), "and its clone", copy["a.factor"].item())
    # -> state_dict 7.0 and its clone 3.0
    print(net.load_state_dict(copy), net.a.factor.item())
    # -> <All keys matched successfully> 3.0

    del copy["a.factor"]
    copy["c.factor"] = tensor([1.0])
    print(net.load_state_dict(copy, strict=False))
    # -> IncompatibleKeys(missing_keys=['a.factor'], unexpected_keys=['c.factor'])
    copy["b.factor"] = tensor([1.0, 2.0])
    try:
        net.load_state_dict(copy)
    except RuntimeError as error:
        print(error)
    # -> Error(s) in loading state_dict for Two:
    # ->     Missing key(s) in state_dict: "a.factor".
    # ->     Unexpected key(s) in state_dict: "c.factor".
    # -> ...
    print(net.get_parameter("b.factor").item(), net.get_submodule("b") is net.b)  # -> 3.0 True

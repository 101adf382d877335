"""Step module24: Backward hooks: the gradient of the output

Which part of a deep network makes the gradient vanish? A hook should see the gradient that arrives
at a module. But backward runs after the call has ended, and it does not know modules: it walks
through the nodes of the graph.

So the module puts a node of its own into the graph, a Gate. In forward it returns its tensor
unchanged. In backward it calls `watch` with the gradient of the output, and what `watch` returns
goes on:

    x ── nodes of forward ── Gate ── y              watch(gradient of y) -> gradient that goes on

register_full_backward_pre_hook(hook) calls hook(module, grad_output) there: "pre", because the
backward of the module has not begun. grad_output is a tuple, since a module may have several
outputs (step module25). What the hook returns takes its place; None leaves it as it is. Hooks get
Tensors and not arrays, hence takes_tensors.

A hook on a tensor (step 65c) would see the same gradient, but has to be registered anew in each
forward. The hook of a module stays.

The trap: under no_grad there is no graph, and no gate.

Changed: Module.__init__, __call__, _call_with_hooks. New: Gate, Gates,
register_full_backward_pre_hook.
Try: return half of the gradient in each module of a row. What reaches the first one?
"""

import importlib
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.hooks import Hooks, RemovableHandle
from tinytorch.autograd.inplace import assign
from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import DType, bfloat16, float16, float32, float64
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.members import Members
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty_like


class Gate(Function):
    """Passes a tensor on unchanged. On the way back `watch` sees its gradient, in a tuple, and
    answers with the one that goes on."""

    takes_tensors = True

    def forward(ctx, watch: Callable, array: Any) -> Any:
        ctx.watch = watch
        return array

    def backward(ctx, grad: Any) -> tuple:
        (answer,) = ctx.watch((grad,))
        return None, answer


def make_tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


class Gates:
    """The gate behind one call of a module that has backward hooks."""

    def __init__(self, module: Any):
        self.module = module

    def leave(self, output: Any) -> Any:
        """The output, behind the gate."""
        if isinstance(output, Tensor) and output.requires_grad:
            return Gate.apply(self.at_outputs, output)
        return output

    def at_outputs(self, grads: tuple) -> tuple:
        return self.ask(self.module._backward_pre_hooks, grads)

    def ask(self, hooks: Hooks, grads: tuple) -> tuple:
        """The gradients, or what the hooks make of them."""
        for hook in list(hooks.values()):
            answer = hook(self.module, grads)
            grads = grads if answer is None else make_tuple(answer)
        return grads


def add_hook(hooks: Hooks, hook: Any, prepend: bool) -> RemovableHandle:
    """Registers a hook after those that are there, or before them (prepend)."""
    others = list(hooks) if prepend else []
    handle = hooks.add(hook)
    for key in others:  # a dict has an order: what is taken out and put back comes last
        hooks[key] = hooks.pop(key)
    return handle


def module_text(module: "Module", parts: list[tuple[str, str]]) -> str:
    """Name(...) with what the module shows of itself and, indented, its parts."""
    extra = module.extra_repr()
    lines = extra.split("\n") if extra else []
    if len(lines) == 1 and not parts:
        return f"{type(module).__name__}({extra})"
    lines += [f"({name}): " + text.replace("\n", "\n  ") for name, text in parts]
    inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
    return f"{type(module).__name__}({inside})"


def converter(to: DType | str) -> Callable[["Module"], "Module"]:
    """The method that brings a module to a type or a device, such as module.double()."""
    return lambda self: self.to(to)


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """The result of load_state_dict: names without a value, and values without a name."""

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()


def load_member(key: str, members: dict, name: str, state: Mapping, itself: bool) -> list[str]:
    """Copies state[key] into a parameter or buffer, or puts it there `itself`. What is wrong, if
    something is, is the answer."""
    member, value = members[name], state[key]
    if not isinstance(value, Tensor):
        return [f'While copying the parameter named "{key}", expected Tensor, got {type(value)}']
    if value.shape != member.shape:
        found = f"copying a param with shape {value.shape} from checkpoint"
        return [f"size mismatch for {key}: {found}, the shape in current model is {member.shape}."]
    if itself:
        if isinstance(member, Parameter):
            value = value if isinstance(value, Parameter) else Parameter(value, False)
            value.requires_grad_(member.requires_grad)
        members[name] = value
        return []
    with no_grad():
        assign(member, value.to(device=member.device, dtype=member.dtype))
    return []


class Module(Members):
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
        super().__init__()
        self.training = True
        for name in "forward_pre forward backward_pre load_state_dict_pre".split():
            self.__dict__[f"_{name}_hooks"] = Hooks()

    # What is done to all of it.

    def apply(self, fn: Callable[["Module"], None]) -> "Module":
        """Calls fn with each part, the inner ones first, and with this module last."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> "Module":
        """Tells this module and its parts that they are in training: Dropout drops only then."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():  # each is asked: a part may have a train of its own
            module.train(mode)
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
            if set_to_none:
                param.grad = None
            elif param.grad is not None:
                param.grad.detach_().zero_()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Module":
        """Replaces the data of each parameter, gradient and buffer. The parameters stay the same
        objects, so that an optimizer that has them goes on working."""
        for module in self.children() if recurse else ():
            module._apply(fn)
        with no_grad():
            for param in self.parameters(recurse=False):
                param.data = fn(param.data)
                if param.grad is not None:
                    param.grad = fn(param.grad.detach())
            for name, buffer in self._buffers.items():
                self._buffers[name] = None if buffer is None else fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> "Module":
        """Moves the module to a device, or to a float type, with the arguments of Tensor.to.

        Unlike Tensor.to it changes the module itself. Integer buffers keep their type.
        Raises:
            TypeError: for a type that is not a float type.
        """

        def convert(t: Tensor) -> Tensor:
            moved = t.to(*args, **kwargs)
            if t.is_floating_point() and not moved.is_floating_point():
                raise TypeError(f"Module.to only accepts floating point, not {moved.dtype!r}")
            return moved if t.is_floating_point() else t.to(moved.device)

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> "Module":
        """Moves the module to a device; what its members were is lost."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def type(self, dst_type: Any) -> "Module":
        """Makes all members of one type, integers too."""
        return self._apply(lambda t: t.type(dst_type))

    float = converter(float32)
    double = converter(float64)
    half = converter(float16)
    bfloat16 = converter(bfloat16)
    cpu = converter("cpu")

    def cuda(self, device: Any = None) -> "Module":
        return self.to("cuda" if device is None else device)

    # Its state, as names and values.

    def _own_state(self) -> Iterator[tuple[dict, str]]:
        """(parameters or buffers, name there) of all that the module itself is to keep."""
        left_out = self._non_persistent - self._parameters.keys()
        for members in (self._parameters, self._buffers):
            for name, member in members.items():
                if member is not None and name not in left_out:
                    yield members, name

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        """What the module itself adds to a state_dict."""
        for members, name in self._own_state():
            destination[prefix + name] = members[name] if keep_vars else members[name].detach()

    def state_dict(self, destination=None, prefix: str = "", keep_vars: bool = False) -> dict:
        """All parameters and persistent buffers by name. They share the module's memory: clone
        what has to stay as it is. With keep_vars they are the parameters."""
        state = OrderedDict() if destination is None else destination
        self._save_to_state_dict(state, prefix, keep_vars)
        for name, module in self._modules.items():  # each is asked: a part may add to its state
            if module is not None:
                module.state_dict(destination=state, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        return state

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:
        """Takes what belongs to the module itself, the names that begin with `prefix` and have no
        further point, and adds to the lists what is wrong. A subclass may rename keys before."""
        own = {name: members for members, name in self._own_state()}
        for name, members in own.items():
            if (key := prefix + name) in state_dict:
                error_msgs += load_member(key, members, name, state_dict, local_metadata["assign"])
            elif strict:
                missing_keys.append(key)
        for key in state_dict if strict else ():
            first, *more = key.removeprefix(prefix).split(".")
            if key.startswith(prefix) and first not in (self._modules if more else own):
                unexpected_keys.append(key)

    def load_state_dict(self, state_dict: Mapping, strict=True, assign=False) -> _IncompatibleKeys:
        """Copies the values of a state_dict into the parameters and buffers with the same names.

        With assign=True the tensors themselves take their place. RuntimeError that lists all
        missing and unexpected names (not with strict=False) and all shapes that differ.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        state, missing, unexpected, errors = OrderedDict(state_dict), [], [], []
        for path, module in self.named_modules(remove_duplicate=False):
            arguments = state, path and f"{path}.", {"assign": assign}, True, missing, unexpected
            for hook in list(module._load_state_dict_pre_hooks.values()):
                hook(module, *arguments, errors)
            module._load_from_state_dict(*arguments, errors)
        for keys, word in ((unexpected, "Unexpected"), (missing, "Missing")):
            if strict and keys:
                listed = ", ".join(f'"{key}"' for key in keys)
                errors.insert(0, f"{word} key(s) in state_dict: {listed}. ")
        if errors:
            start = f"Error(s) in loading state_dict for {type(self).__name__}:\n\t"
            raise RuntimeError(start + "\n\t".join(errors))
        return _IncompatibleKeys(missing, unexpected)

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
        watched = self._backward_pre_hooks
        if self._forward_hooks or self._forward_pre_hooks or watched:
            return self._call_with_hooks(args, kwargs, watched)
        return self.forward(*args, **kwargs)

    def _call_with_hooks(self, args: tuple, kwargs: dict, watched: Any) -> Any:
        for hook, with_kwargs in list(self._forward_pre_hooks.values()):
            answer = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if answer is not None:
                args, kwargs = answer if with_kwargs else (make_tuple(answer), kwargs)
        gates = Gates(self) if watched and state.grad_enabled else None
        output = self.forward(*args, **kwargs)
        for hook, with_kwargs in list(self._forward_hooks.values()):
            answer = hook(self, args, *([kwargs] if with_kwargs else []), output)
            output = output if answer is None else answer
        return output if gates is None else gates.leave(output)

    def register_forward_pre_hook(self, hook: Callable, *, prepend=False, with_kwargs=False) -> Any:
        """Calls hook(module, args) before each forward; what it returns takes the place of args.

        With kwargs it is hook(module, args, kwargs), and may return both. A hook that is prepended
        comes before those that are there.
        """
        return add_hook(self._forward_pre_hooks, (hook, with_kwargs), prepend)

    def register_forward_hook(self, hook: Callable, *, prepend=False, with_kwargs=False) -> Any:
        """Calls hook(module, args, output) after each forward; what it returns is the output.

        With kwargs it is hook(module, args, kwargs, output).
        """
        return add_hook(self._forward_hooks, (hook, with_kwargs), prepend)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> Any:
        """Calls hook(module, grad_output) when the gradients of the outputs are known; what it
        returns takes their place."""
        return add_hook(self._backward_pre_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> Any:
        """Calls hook(module, *arguments of _load_from_state_dict) before each load: it may give
        the keys of an older file their new names."""
        return add_hook(self._load_state_dict_pre_hooks, hook, False)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> Any:
        given = hook if with_module else lambda module, *arguments: hook(*arguments)
        return self.register_load_state_dict_pre_hook(given)


if __name__ == "__main__":
    # Importing the modules of the operations brings their methods to Tensor.
    for name in ("arithmetic", "comparison", "creation", "elementwise", "reduction"):
        importlib.import_module(f"tinytorch.ops.{name}")
    importlib.import_module("tinytorch.core.printing")

    class Scale(Module):
        """y = factor * x."""

        def __init__(self, factor):
            super().__init__()
            self.factor = Parameter(tensor([factor]))

        def forward(self, x):
            return x * self.factor

    class Tanh(Module):
        def forward(self, x):
            return x.tanh()

    class Net(Module):
        def __init__(self):
            super().__init__()
            self.a, self.bend, self.b = Scale(2.0), Tanh(), Scale(10.0)

        def forward(self, x):
            return self.b(self.bend(self.a(x)))

    net, x = Net(), tensor([[0.5]])

    def arrives(module, grads):
        print(f"{type(module).__name__}: {grads[0].item():.4f}")

    handles = [part.register_full_backward_pre_hook(arrives) for part in net.children()]
    y = net(x)
    print(type(y.grad_fn).__name__)  # -> Gate
    y.backward()
    # -> Scale: 1.0000
    # -> Tanh: 10.0000
    # -> Scale: 4.1997
    print(f"{net.a.factor.grad.item():.4f}")  # -> 2.0999
    for handle in handles:
        handle.remove()

    # Twice the gradient, and no line of Tanh is changed.
    net.zero_grad()
    with net.bend.register_full_backward_pre_hook(lambda module, grads: (grads[0] * 2,)):
        net(x).backward()
        with no_grad():
            print(net(x).grad_fn)
    # -> None
    print(f"{net.a.factor.grad.item():.4f}")  # -> 4.1997

    # An output that needs no gradient passes no gate.
    net.b.factor.requires_grad_(False)
    with net.b.register_full_backward_pre_hook(arrives):
        print(net.b(x).grad_fn)  # -> None

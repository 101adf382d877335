"""Step module19: load_state_dict in the package's dress

Step 48b built load_state_dict: the objects stay, and their content changes, so that an optimizer
keeps its parameters. Here the value is also converted to the type and device of the member: a
network on the GPU stays there. It needs no_grad, because a parameter must not be written in place
while history is recorded.

Both directions now use the same list, _own_state. This also fixes a fault: a name that was once a
non-persistent buffer was left out of the state even after it became a parameter.

The trap of step module08 again: a state without clone() is the network's own memory, and loading it
changes nothing.

Changed: Module.state_dict. New: _own_state, load_state_dict. The containers rest until step
module28, which finishes them.
Try: keep `state` instead of a clone, and see which promise breaks.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.inplace import assign
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import DType, bfloat16, float16, float32, float64
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.members import Members
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty_like


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


class Module(Members):
    """A part of a network. A subclass makes its parameters and parts in `__init__`, after
    `super().__init__()`, and says in `forward` what it computes."""

    training: bool

    def __init__(self):
        super().__init__()
        self.training = True

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

    def state_dict(self) -> dict:
        """All parameters and persistent buffers by name. They share the module's memory: clone
        what has to stay as it is."""
        state = {}
        for path, module in self.named_modules(remove_duplicate=False):
            for members, name in module._own_state():
                state[f"{path}.{name}" if path else name] = members[name].detach()
        return state

    def load_state_dict(self, state_dict: Mapping) -> None:
        """Copies the values of a state_dict into the parameters and buffers with the same names."""
        for path, module in self.named_modules(remove_duplicate=False):
            for members, name in module._own_state():
                member, value = members[name], state_dict[f"{path}.{name}" if path else name]
                with no_grad():
                    assign(member, value.to(device=member.device, dtype=member.dtype))

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
    # Importing the modules of the operations brings their methods to Tensor.
    for name in ("arithmetic", "comparison", "creation", "elementwise", "reduction"):
        importlib.import_module(f"tinytorch.ops.{name}")

    class Scale(Module):
        """y = factor * x, and counts the rows that it has seen."""

        def __init__(self, factor):
            super().__init__()
            self.factor = Parameter(tensor([factor]))
            self.register_buffer("seen", tensor(0))
            self.register_buffer("scratch", None, persistent=False)

        def forward(self, x):
            self.seen, self.scratch = self.seen + len(x), x
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
    net(x)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    print({name: value.tolist() for name, value in state.items()})
    # -> {'a.factor': [2.0], 'a.seen': 1, 'b.factor': [10.0], 'b.seen': 1}
    held = net.a.factor  # as an optimizer would
    held.data.fill_(7.0)
    net(x)

    try:
        net.a.factor = state["a.factor"]
    except TypeError as error:
        print(error)
    # -> cannot assign 'Tensor' as parameter 'factor', which it is not
    net.a.factor = Parameter(state["a.factor"].clone())
    print("a new object:", net.a.factor.item(), "and the optimizer's", held.item())
    # -> a new object: 2.0 and the optimizer's 7.0

    net.a.factor = held
    net.load_state_dict(state)
    print("the same object:", net.a.factor.item(), net.a.factor is held, net.a.seen.item())
    # -> the same object: 2.0 True 1

    # Another network, of another type, takes the numbers and keeps its type.
    other = Net().double()
    other.load_state_dict(state)
    print(other.a.factor.dtype, f"{other(x.double()).item():.4f} = {net(x).item():.4f}")
    # -> tinytorch.float64 7.6159 = 7.6159

    # Once a buffer that was left out, now a parameter: it is kept.
    net.bend.register_buffer("slope", tensor([1.0]), persistent=False)
    print("bend.slope" in net.state_dict())  # -> False
    net.bend.slope = Parameter(tensor([1.0]))
    print("bend.slope" in net.state_dict())  # -> True

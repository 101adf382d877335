"""Step 75c: Another type, and the same parameters

x.to(float64) is another tensor, and leaves x as it was (step 61e). A network that is brought to
another type in that way gets new parameters:

    for each linear layer:   layer.weight = Parameter(layer.weight.detach().to(float64))

But the optimizer was made before, and holds the old ones. It finds no gradients there and moves
nothing: in the demo the loss stays at 10.27.

So Module.to changes what the parameters hold, and not which objects they are:

    net ---- Parameter ---- array [float32]        p.data = p.data.to(float64)
                |                                  the object stays, for all who hold it;
    optimizer --'        -> array [float64]        its array is another one

p.data is the same memory without a history, like p.detach(). Setting it gives p other elements. A
gradient that waits is brought along, since it has to fit. _apply does this for any function of a
tensor, in all parts.

No optimizer holds buffers, so they may be new tensors. A counter of batches is a buffer of integers
and has to go on counting by ones, so `to` leaves it as it is.

The trap: Tensor.to returns, Module.to changes. `net.to(float64)` alone is enough; `x.to(float64)`
alone does nothing.

PyTorch: net.to(dtype), net.to(device), net.half(), net.double() are all calls of _apply.

New: Module._apply, Module.to.
Try: loop over self._parameters.items(), and put a Parameter(fn(p.data)) there. Who notices?
"""

import numpy as np

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
from tinytorch.core.dtype import float16, float64, int64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.functional import mse_loss
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.random import manual_seed, rand, randn
from tinytorch.optim.sgd import SGD


class Module:
    """A part of a network. A subclass makes its parameters and parts as attributes in __init__,
    after super().__init__(), and says in `forward` what it computes."""

    def __init__(self):
        vars(self).update(_parameters={}, _buffers={}, _modules={})
        self.training = True

    def _store_of(self, name):
        """Which of the three dictionaries has a member of this name, or None.

        vars, since self._modules would call __getattr__ again before __init__ has run.
        """
        for store in ("_parameters", "_modules", "_buffers"):
            if name in vars(self).get(store, {}):
                return store
        return None

    def __setattr__(self, name, value):
        store = self._store_of(name)
        if store is None and isinstance(value, Parameter):
            store = "_parameters"
        if store is None and isinstance(value, Module):
            store = "_modules"
        if store is None:
            object.__setattr__(self, name, value)
        else:
            vars(self).pop(name, None)  # a plain attribute would hide the member
            self._register(store, name, value)

    def __getattr__(self, name):
        store = self._store_of(name)
        if store is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return vars(self)[store][name]

    def _register(self, store, name, value):
        """Add a member, or replace it by another one of its kind, or by None."""
        kind = {"_parameters": Parameter, "_buffers": Tensor, "_modules": Module}[store]
        if store not in vars(self):
            raise AttributeError(f"cannot assign '{name}' before Module.__init__() call")
        if name not in vars(self)[store] and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"cannot assign '{type(value).__name__}' as {kind.__name__} '{name}'")
        vars(self)[store][name] = value

    def register_parameter(self, name, param):
        """Make `param` the parameter of this name. None keeps the name."""
        self._register("_parameters", name, param)

    def __call__(self, *args):
        return self.forward(*args)

    def register_buffer(self, name, tensor):
        """Make `tensor` a member that belongs to the state, but is not learned."""
        self._register("_buffers", name, tensor)

    def named_children(self):
        """(name, part) for each part."""
        for name, member in self._modules.items():
            if member is not None:
                yield name, member

    def named_members(self):
        """(path, tensor) of all parameters and buffers."""
        for name, member in {**self._parameters, **self._buffers}.items():
            if member is not None:
                yield name, member
        for name, child in self.named_children():
            for path, member in child.named_members():
                yield f"{name}.{path}", member

    def named_parameters(self):
        """(path, parameter): ("0.weight", ...), ("0.bias", ...); each parameter once."""
        found = set()
        for path, member in self.named_members():
            if isinstance(member, Parameter) and member not in found:
                found.add(member)
                yield path, member

    def parameters(self):
        """All parameters, however deep."""
        for _, parameter in self.named_parameters():
            yield parameter

    def train(self, mode=True):
        """Tell this module and its parts whether they are in training."""
        self.training = mode
        for _, child in self.named_children():
            child.train(mode)
        return self

    def eval(self):
        """The network is used from now on, not trained."""
        return self.train(False)

    def _apply(self, fn):
        """Replace what the parameters and their gradients hold, and the buffers, by fn of them."""
        for _, child in self.named_children():
            child._apply(fn)
        for p in self._parameters.values():
            if p is not None:
                p.data = fn(p.data)
                if p.grad is not None:
                    p.grad = fn(p.grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, dtype):
        """Bring this module to another float type. Integers stay what they are."""
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def state_dict(self):
        """All parameters and buffers by their paths, outside of the graph. They share the memory:
        copy.deepcopy what has to stay as it is."""
        return {path: member.detach() for path, member in self.named_members()}

    def load_state_dict(self, state_dict):
        """Take over the values of a state_dict. Names and shapes have to be the same."""
        members = dict(self.named_members())
        if members.keys() != state_dict.keys():
            raise RuntimeError(f"other names: {sorted(members.keys() ^ state_dict.keys())}")
        for path, member in members.items():
            value = state_dict[path]
            if value.shape != member.shape:
                raise RuntimeError(f"size mismatch for {path}: {value.shape}, not {member.shape}")
            np.copyto(member.array, value.array)

    def extra_repr(self):
        """What a module shows of itself between the brackets."""
        return ""

    def __repr__(self):
        lines = [f"({name}): {child!r}" for name, child in self.named_children()]
        text = "".join("\n" + line for line in lines).replace("\n", "\n  ") + "\n" * bool(lines)
        return f"{type(self).__name__}({self.extra_repr()}{text})"


def uniform_parameter(bound, *size):
    """A Parameter with numbers evenly from [-bound, bound)."""
    return Parameter(rand(*size) * (2 * bound) - bound)


class Linear(Module):
    """y = x W^T + b, with weight [out_features, in_features] and bias [out_features]."""

    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        bound = 1 / in_features**0.5
        self.weight = uniform_parameter(bound, out_features, in_features)
        self.bias = uniform_parameter(bound, out_features) if bias else None

    def forward(self, x):
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias

    def extra_repr(self):
        n, m = self.weight.shape
        return f"in_features={m}, out_features={n}, bias={self.bias is not None}"


class ReLU(Module):
    """relu as a module."""

    def forward(self, x):
        return x.relu()


class Sequential(Module):
    """Modules in a row: each gets what the one before it gives. net[0] is the first of them."""

    def __init__(self, *modules):
        super().__init__()
        for number, module in enumerate(modules):
            setattr(self, str(number), module)

    def __getitem__(self, number):
        return getattr(self, str(number))

    def forward(self, x):
        for _, module in self.named_children():
            x = module(x)
        return x


class ModuleList(Module):
    """A list of modules, for a forward that goes through them in its own way."""

    def __init__(self, modules=None):
        super().__init__()
        for module in modules or ():
            self.append(module)

    def append(self, member):
        setattr(self, str(len(self)), member)
        return self

    def __iter__(self):
        return iter([child for _, child in self.named_children()])

    def __len__(self):
        return len(list(self.named_children()))

    def __getitem__(self, index):
        return list(self)[index]


class ModuleDict(Module):
    """Modules by name, for a forward that chooses among them."""

    def __init__(self, modules=None):
        super().__init__()
        for name, module in (modules or {}).items():
            self[name] = module

    def __setitem__(self, key, member):
        setattr(self, key, member)

    def __getitem__(self, key):
        return dict(self.named_children())[key]


if __name__ == "__main__":
    manual_seed(0)
    x = randn(64, 4).to(float64)
    target = x.sum(1, keepdim=True) * 1.5

    def by_hand(net):
        for layer in (net[0], net[2]):
            layer.weight = Parameter(layer.weight.detach().to(float64))
            layer.bias = Parameter(layer.bias.detach().to(float64))

    def losses(change):
        """The losses before and after 100 steps of an optimizer that was made before the change."""
        manual_seed(1)
        net = Sequential(Linear(4, 16), ReLU(), Linear(16, 1))
        optimizer = SGD(net.parameters(), lr=0.05)
        change(net)
        found = []
        for _ in range(101):
            loss = mse_loss(net(x), target)
            found.append(round(loss.item(), 2))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return found[0], found[-1]

    print("new parameters: ", *losses(by_hand))  # -> new parameters:  10.27 10.27
    print("the same objects:", *losses(lambda net: net.to(float64)))
    # -> the same objects: 10.27 0.06

    net = Sequential(Linear(100, 100))
    net.register_buffer("seen", tensor(7))
    net.register_buffer("mean", tensor([0.5]))
    weight = net[0].weight
    net(randn(2, 100)).sum().backward()
    for dtype in (float64, float16):
        net.to(dtype)
        size = weight.numel() * weight.dtype.itemsize
        same = net[0].weight is weight and weight.grad.dtype is dtype and net.mean.dtype is dtype
        print(f"{size} bytes, all as {dtype}: {same}, the counter: {net.seen.dtype is int64}")
        # -> 80000 bytes, all as tinytorch.float64: True, the counter: True
        # -> 20000 bytes, all as tinytorch.float16: True, the counter: True

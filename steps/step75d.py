"""Step 75d: Hooks: looking into a network

A network of twelve layers learns nothing. Where does the signal get lost? Step 44 computed layer by
layer to find out. A Sequential, or another person's network, has no place for a print. But each
part is called, and Module.__call__ is ours:

    x --> pre-hooks(module, args) --> forward --> hooks(module, args, output) --> y

A *forward hook* is a function that is registered at one module. It sees each output; what it
returns, unless it is None, takes the output's place. A *pre-hook* sees the arguments before, and
may replace them.

register_forward_hook returns a handle, and handle.remove() takes the hook away again. The handle is
the key in the dictionary, so one function may be registered twice. The call walks a copy of the
hooks, so that one may remove itself.

First the demo looks: the spread of the signal falls from 0.35 after one layer to 0.04 after twelve,
where little more than the biases is left. Then it changes: in a network that reads digits, a hook
sets one of 16 hidden units to 0, each in turn. One costs 47 % of the answers, four cost none.

The trap: net.forward(x) computes the same, and calls no hook of net. So write net(x). And
a hook that is not removed stays for the life of the network.

PyTorch: the same names. (Gradients have hooks too: register_full_backward_hook.)

Changed: Module.__init__, Module.__call__. New: RemovableHandle, Module.register_forward_pre_hook,
Module.register_forward_hook.
Try: take out handle.remove() in the loop over the units. What does the last unit cost now?
In depth: module01 to module28, layers01 to layers10, activation01 to activation13,
loss01 to loss19, init01 to init06, weightnorm01 to weightnorm05, lazy01 to lazy03,
parametrize01 to parametrize04, residual01 to residual04, cells01 to cells04, loops01 to loops09,
rnn01 to rnn10.
"""

import pathlib
from collections import namedtuple

import numpy as np

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.functional import cross_entropy
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.random import manual_seed, rand, randn
from tinytorch.optim.adam import AdamW

IncompatibleKeys = namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])


class RemovableHandle:
    """A registered hook, which remove() takes away."""

    def __init__(self, hooks, hook):
        self.hooks = hooks
        hooks[self] = hook

    def remove(self):
        self.hooks.pop(self, None)


class Module:
    """A part of a network. A subclass makes its parameters and parts as attributes in __init__,
    after super().__init__(), and says in `forward` what it computes."""

    def __init__(self):
        vars(self).update(_parameters={}, _buffers={}, _modules={})
        self.training = True
        self._forward_pre_hooks, self._forward_hooks = {}, {}  # {handle: hook}

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
        for hook in list(self._forward_pre_hooks.values()):
            answer = hook(self, args)
            if answer is not None:
                args = answer if isinstance(answer, tuple) else (answer,)  # one argument alone
        output = self.forward(*args)
        for hook in list(self._forward_hooks.values()):
            answer = hook(self, args, output)
            output = output if answer is None else answer
        return output

    def register_forward_pre_hook(self, hook):
        """Call hook(module, args) before each forward; what it returns takes the place of args."""
        return RemovableHandle(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook):
        """Call hook(module, args, output) after each forward; what it returns is the output."""
        return RemovableHandle(self._forward_hooks, hook)

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

    def state_dict(self):
        """All parameters and buffers by their paths, outside of the graph. They share the memory:
        copy.deepcopy what has to stay as it is."""
        return {path: member.detach() for path, member in self.named_members()}

    def load_state_dict(self, state_dict, strict=True):
        """Take over the values of a state_dict; the names that differ are the answer.

        With strict they are an error. Shapes have to be the same.
        """
        members = dict(self.named_members())
        missing = [path for path in members if path not in state_dict]
        unexpected = [path for path in state_dict if path not in members]
        if strict and (missing or unexpected):
            raise RuntimeError(f"Missing key(s): {missing}, unexpected key(s): {unexpected}")
        for path, member in members.items():
            if path in missing:
                continue
            value = state_dict[path]
            if value.shape != member.shape:
                raise RuntimeError(f"size mismatch for {path}: {value.shape}, not {member.shape}")
            np.copyto(member.array, value.array)
        return IncompatibleKeys(missing, unexpected)

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
    deep = Sequential(*[Sequential(Linear(64, 64), ReLU()) for _ in range(12)])
    spreads = []

    def note(module, args, output):
        spreads.append(round(output.std().item(), 2))

    for _, layer in deep.named_children():
        layer.register_forward_hook(note)
    deep(randn(100, 64))
    print(spreads[:4], "...", spreads[-1])  # -> [0.35, 0.14, 0.07, 0.05] ... 0.04

    packed = pathlib.Path(__file__).parent / "../tinytorch/datasets/digits.csv.gz"
    table = np.loadtxt(packed, delimiter=",", dtype=np.float32)
    images, digits = tensor(table[:, :64] / 16), tensor(table[:, 64].astype(np.int64))
    net = Sequential(Linear(64, 16), ReLU(), Linear(16, 10))
    optimizer = AdamW(net.parameters(), lr=0.01)
    for _ in range(200):
        loss = cross_entropy(net(images[:1400]), digits[:1400])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def right():
        return (net(images[1400:]).argmax(1) == digits[1400:]).sum().item() / 397

    def without(unit):
        """A hook that sets one unit to 0."""
        kept = tensor([float(i != unit) for i in range(16)])
        return lambda module, args, output: output * kept

    whole, costs = right(), []
    for unit in range(16):
        handle = net[1].register_forward_hook(without(unit))
        costs.append(f"{whole - right():.0%}")
        handle.remove()
    print(f"{whole:.0%} are right. What each unit costs:", *costs)
    # -> 90% are right. What each unit costs: 6% 15% 16% 5% 0% 47% 27% 0% 11% 0% 20% 4% 4% 7% 18% 0%

    # A pre-hook: the images are darker, before the network sees them.
    net.register_forward_pre_hook(lambda module, args: args[0] * 0.3)
    print(f"{right():.0%} in the dark")  # -> 88% in the dark
    print((net(images) - net.forward(images)).abs().sum().item() > 0)  # -> True

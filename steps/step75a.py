"""Step 75a: Lists and dictionaries of modules

My network keeps its layers in a list, since forward does more between them than Sequential. Then
parameters() does not find them: it looks at attributes, and a list is neither a Parameter nor a
Module. There is no error. In the demo only the last layer is trained, and the loss stays at 0.43
where it could be 0.05.

    self.layers = [Linear(8, 8), ...]                the attribute is a list: not looked into
    self.layers = ModuleList([Linear(8, 8), ...])    a module, with the parts "0", "1", ...

A ModuleList gives each part its number as a name, as Sequential does (step 41b), and is used like a
list: len, a number in brackets, a loop, append. It has no forward: its owner's forward says what
happens. A ModuleDict does the same under names that you choose, for a network that picks a part at
run time.

From here on a step holds what it builds, and imports the rest, finished, from tinytorch. Here that
is the tensor with its operations. Module, Linear and Sequential are those of step 60c.

The trap: the names are part of the state (step 48b). An insertion at the front of a ModuleList
shifts all numbers, and an old file then fits the wrong layers.

New: ModuleList, ModuleDict.
Try: write self.layers = [...] in Deep. How many parameters are found, and what is the loss?
"""

import numpy as np

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
from tinytorch.core.tensor import tensor
from tinytorch.nn.functional import mse_loss
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.random import manual_seed, rand, randn
from tinytorch.optim.sgd import SGD


class Module:
    """A part of a network. A subclass makes its parameters and parts as attributes in __init__,
    after super().__init__(), and says in `forward` what it computes."""

    def __init__(self):
        self.training = True
        self._buffers = []  # the names of tensors that belong to the state and are not learned

    def __call__(self, *args):
        return self.forward(*args)

    def register_buffer(self, name, tensor):
        """Make `tensor` an attribute that belongs to the state, but is not learned."""
        setattr(self, name, tensor)
        self._buffers.append(name)

    def named_children(self):
        """(name, part) for each attribute that is a Module."""
        for name, member in vars(self).items():
            if isinstance(member, Module):
                yield name, member

    def named_members(self):
        """(path, tensor) of all parameters and buffers."""
        for name, member in vars(self).items():
            if isinstance(member, Parameter):
                yield name, member
        for name in self._buffers:
            yield name, getattr(self, name)
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

    class Deep(Module):
        """Four layers, each added to what it got."""

        def __init__(self, make):
            super().__init__()
            self.layers = make([Linear(8, 8) for _ in range(4)])
            self.last = Linear(8, 1)

        def forward(self, x):
            for layer in self.layers:
                x = x + layer(x).relu()
            return self.last(x)

    manual_seed(0)
    x = randn(64, 8)
    target = (x[:, :1] * x[:, 1:2]).relu()  # no line: the last layer alone cannot learn it

    def train(net):
        optimizer = SGD(net.parameters(), lr=0.05)
        for _ in range(300):
            loss = mse_loss(net(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return f"{len(list(net.parameters()))} parameters, loss {loss.item():.2f}"

    for make in (list, ModuleList):
        manual_seed(1)
        print(f"{make.__name__}:", train(Deep(make)))
        # -> list: 2 parameters, loss 0.43
        # -> ModuleList: 10 parameters, loss 0.05

    layers = ModuleList([Linear(1, 2)]).append(Linear(2, 3))
    print(len(layers), layers[-1], [name for name, _ in layers.named_parameters()])
    # -> 2 Linear(in_features=2, out_features=3, bias=True) ['0.weight', '0.bias', '1.weight', ...

    parts = ModuleDict({"bend": ReLU()})
    parts["line"] = Linear(1, 1)
    print(parts["bend"](tensor([-3.0])).tolist(), [name for name, _ in parts.named_parameters()])
    # -> [0.0] ['line.weight', 'line.bias']

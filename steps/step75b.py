"""Step 75b: Members are found by their names

Three lines that look right, on the Module of step 75a:

    net.weight = net.weight * 0.5    the result is a Tensor. The Parameter is gone, in silence.
    ModuleDict({"eval": ReLU()})     the attribute hides the method: net.eval() calls the ReLU
    super().__init__() forgotten     works, until somebody asks for net.training

So the module has to look at an attribute when it is set. In Python, `net.name = value` calls
net.__setattr__("name", value). And if neither the object nor its class has the name, `net.name`
calls net.__getattr__("name"). So members need not be attributes. Each kind gets a dictionary:

    _parameters {"weight": ..., "bias": None}      _buffers {...}      _modules {"0": ..., "1": ...}

__setattr__ decides by the value; a name that is in a dictionary already stays in that one.
_register refuses what does not fit: the wrong type, a name that is taken, a module whose __init__
has not run. The walks (named_children, named_members) read the dictionaries. Whatever else a
program sets is a plain attribute, as it was.

None keeps the name of an option that was not chosen, and walks leave it out. A name begins so with
register_parameter("bias", None).

The trap: a plain attribute hides a member, since Python looks there first. So setting a member
takes a plain attribute of that name away. (`vars(self).update` in __init__ writes past __setattr__,
which needs the dictionaries.)

PyTorch has the same three dictionaries and types of error, and register_module for modules. Its
net.to(float64) gives each Parameter new data and keeps the object, since an optimizer holds it: a
new Parameter would not be trained.

Changed: Module.__init__, register_buffer, named_children, named_members. New: Module._store_of,
__setattr__, __getattr__, _register, register_parameter.
Try: take out the line that pops a plain attribute. Which line of the demo is refused now?
"""

import numpy as np

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.random import rand


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
    net = Linear(2, 1)
    print(sorted(vars(net)["_parameters"]), net.training, net.weight is net._parameters["weight"])
    # -> ['bias', 'weight'] True True

    def refused(assign):
        try:
            assign()
        except (AttributeError, KeyError, TypeError) as error:
            return type(error).__name__
        return "done"

    class Hasty(Module):
        def __init__(self):
            self.weight = Parameter(tensor([1.0]))  # and no super().__init__()

    print(refused(lambda: setattr(net, "weight", net.weight * 0.5)))  # -> TypeError
    print(refused(lambda: ModuleDict({"eval": ReLU()})))  # -> KeyError
    print(refused(Hasty), refused(lambda: net.wieght))  # -> AttributeError AttributeError

    # An option that is not chosen, and one that is chosen later.
    net.bias = None
    net.register_parameter("scale", None)
    net.gate = None  # a plain attribute, as the next one is
    net.half = tensor([0.5], requires_grad=True)
    print([name for name, _ in net.named_parameters()], net.scale)  # -> ['weight'] None
    net.gate = Linear(1, 1)
    net.scale = Parameter(tensor([3.0]))
    print([name for name, _ in net.named_parameters()], dict(net.named_children()))
    # -> ['weight', 'scale', 'gate.weight', 'gate.bias'] {'gate': Linear(in_features=1, ...

    # A buffer stays one when it is set again.
    net.register_buffer("mean", tensor([0.0]))
    net.mean = net.mean * 0.9 + 5.0 * 0.1
    print(sorted(net.state_dict()), net.state_dict()["mean"].tolist())
    # -> ['gate.bias', 'gate.weight', 'mean', 'scale', 'weight'] [0.5]

"""One time step of a recurrent network: the formulas, and RNNCell, LSTMCell and GRUCell."""

import math
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.linear import linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty, zeros

# A formula takes x = W_ih input + b_ih, y = W_hh h + b_hh and the state, and gives the next state.


def tanh_step(x: Tensor, y: Tensor, h: Tensor) -> tuple[Tensor]:
    """h' = tanh(x + y)."""
    return ((x + y).tanh(),)


def relu_step(x: Tensor, y: Tensor, h: Tensor) -> tuple[Tensor]:
    """h' = relu(x + y)."""
    return ((x + y).relu(),)


def lstm_step(x: Tensor, y: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """c' = f c + i g and h' = o tanh(c'), with the gates i, f, o = sigmoid and g = tanh of the
    quarters of x + y, in the order i, f, g, o (Hochreiter and Schmidhuber, 1997; f: 2000)."""
    i, f, g, o = (x + y).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_step(x: Tensor, y: Tensor, h: Tensor) -> tuple[Tensor]:
    """h' = (1 - z) n + z h, with r, z = sigmoid(x + y) and n = tanh(x + r y) of the thirds, in the
    order r, z, n (Cho et al., 2014)."""
    (x_r, x_z, x_n), (y_r, y_z, y_n) = x.chunk(3, -1), y.chunk(3, -1)
    n = (x_n + (x_r + y_r).sigmoid() * y_n).tanh()
    return (n + (x_z + y_z).sigmoid() * (h - n),)


@no_grad()
def draw_uniform(module: Module, hidden_size: int) -> None:
    """Draws all parameters from [-b, b), b = 1 / sqrt(hidden_size)."""
    bound = 1 / math.sqrt(hidden_size) if hidden_size else 0.0
    for param in module.parameters():
        param.uniform_(-bound, bound)


def add_weights(
    module: Module, names: str, gates: int, sizes: tuple[int, int], bias: bool, device, dtype
) -> list[str]:
    """Registers weight_ih [gates * hidden, input], weight_hh [gates * hidden, hidden], bias_ih and
    bias_hh, or None without bias, under `names`, such as "{}_l0"; the names are returned."""
    size, hidden = sizes
    shapes = {"weight_ih": (size,), "weight_hh": (hidden,), "bias_ih": (), "bias_hh": ()}
    for name, columns in shapes.items():
        made = columns or bias
        shape = (gates * hidden, *columns)
        param = Parameter(empty(shape, device=device, dtype=dtype)) if made else None
        module.register_parameter(names.format(name), param)
    return [names.format(name) for name in shapes]


class RNNCellBase(Module):
    """What the cells have in common: weight_ih, weight_hh, bias_ih and bias_hh."""

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        add_weights(self, "{}", num_chunks, (input_size, hidden_size), bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        draw_uniform(self, self.hidden_size)

    def _step(self, formula: Callable, input: Tensor, *states: Tensor | None) -> tuple:
        """The next state. Raises ValueError for other dimensions than [size] or [batch, size]."""
        for tensor in (input, *states):
            if tensor is not None and tensor.array.ndim not in (1, 2):
                name = type(self).__name__
                raise ValueError(f"{name}: Expected 1D or 2D tensors, got {tensor.array.ndim}D")
        if states[0] is None:
            start = zeros(
                *input.shape[:-1], self.hidden_size, dtype=input.dtype, device=input.device
            )
            states = [start] * len(states)
        x = linear(input, self.weight_ih, self.bias_ih)
        y = linear(states[0], self.weight_hh, self.bias_hh)
        for state in states:
            if state.array.shape != (*x.array.shape[:-1], self.hidden_size):
                raise RuntimeError(f"hidden of shape {state.shape} for an input {input.shape}")
        return formula(x, y, *states)

    def extra_repr(self) -> str:
        bias = "" if self.bias is True else f", bias={self.bias}"
        return f"{self.input_size}, {self.hidden_size}{bias}"


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu: one step of a simple recurrent network."""

    def __init__(
        self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None
    ):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """[batch, input_size] or [input_size], and the state, to the next state."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(tanh_step if self.nonlinearity == "tanh" else relu_step, input, hx)[0]

    def extra_repr(self) -> str:
        bend = "" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}"
        return super().extra_repr() + bend


class LSTMCell(RNNCellBase):
    """One step of an LSTM: see lstm_step."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        """[batch, input_size] or [input_size], and (h, c), to the next (h, c)."""
        return self._step(lstm_step, input, *((None, None) if hx is None else hx))


class GRUCell(RNNCellBase):
    """One step of a GRU: see gru_step."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """[batch, input_size] or [input_size], and the state, to the next state."""
        return self._step(gru_step, input, hx)[0]

"""Step checkpoint01: The checkpoint of one node, in the package's dress

Step 60c built this: the block becomes a single node that keeps its input. backward runs the block
again and calls `backward` of the new graph, while the engine is at work on the large one. It is
PyTorch's form with use_reentrant=True, and the next step has a better one. (The idea is from Chen
et al., 2016.)

The trap: if no input of the block requires a gradient, the node records nothing, and the block's
parameters learn nothing, without an error. So it goes wrong for the first block of a network, whose
input is data. Step checkpoint02 has a checkpoint without this fault.

Changed: Checkpoint, checkpoint.
Try: print a line in `block`. Which lines of the demo print it, and how often?
"""

import importlib
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward, grad
from tinytorch.autograd.custom import CustomFunction
from tinytorch.autograd.graph import graph_functions
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.activation import GELU, Tanh
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.comparison import equal
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison indexing matmul norm reduction sampling shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Checkpoint(CustomFunction):
    """A call as one node, which keeps the arguments and calls the function again in backward."""

    @staticmethod
    def forward(ctx: Any, function: Callable, *args: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(*args)
        return function(*args)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        if state.grad_enabled:  # create_graph=True
            raise NotImplementedError("Checkpoint cannot be differentiated twice")
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        with enable_grad():
            output = ctx.function(*inputs)
        backward(output, g)
        return None, *(x.grad for x in inputs)


def checkpoint(function: Callable, *args: Tensor) -> Tensor:
    """function(*args), of which only the arguments and the result are kept for backward."""
    return Checkpoint.apply(function, *args)


if __name__ == "__main__":
    manual_seed(0)
    model = Sequential(*(Sequential(Linear(64, 64), Tanh(), GELU()) for _ in range(4)))
    x = randn(32, 64, requires_grad=True)

    def run(call):
        h = x
        for block in model:
            h = call(block, h)
        return h

    def kept(y):
        """Bytes of the arrays that the graph of y keeps now."""
        return sum(v.nbytes for node in graph_functions(y) for v in node.saved)

    plain = run(lambda block, h: block(h))
    checked = run(checkpoint)
    print(len(graph_functions(plain)), len(graph_functions(checked)))  # -> 12 4
    print(kept(plain) > 3 * kept(checked), kept(checked) == 4 * x.nbytes)  # -> True True

    def gradients(y):
        for tensor in (x, *model.parameters()):
            tensor.grad = None
        backward(y.sum())
        return [tensor.grad for tensor in (x, *model.parameters())]

    same = zip(gradients(plain), gradients(checked), strict=True)
    print("same gradients:", all(equal(a, b) for a, b in same))  # -> same gradients: True

    # How often is a block computed, and with which mode?
    calls = []

    def block(a, b):
        calls.append(state.grad_enabled)
        return (a * b).tanh() * a

    a, b = tensor(0.5, requires_grad=True), tensor(2.0, requires_grad=True)
    y = checkpoint(block, a, b)
    print(calls)  # -> [False]
    print(grad(y, (a, b)), calls)
    # -> (tensor(1.1816), tensor(0.1050)) [False, True]

    try:
        grad(checkpoint(block, a, b), a, create_graph=True)
    except NotImplementedError as error:
        print(error)  # -> Checkpoint cannot be differentiated twice

    # The trap: data as the input.
    y = checkpoint(model[0], x.detach())
    print(y.requires_grad, model[0](x.detach()).requires_grad)  # -> False True

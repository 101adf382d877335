"""Step 86a: How many operations does a step need?

Does my program use the machine well? Seconds do not tell, unless one knows how much there was to
do. So count the multiplications and additions of floating point numbers, FLOPs. Nearly all of them
are in products:

    [n, m] @ [m, p]      n * p results, each of m multiplications and m additions:  2 n m p

That is two for each weight and each example. A mode (step 65d) sees every product with its result,
and adds up: 2 * the number of results * the length of a row.

Backward has two products for each one of forward, for the input's gradient and for the weight's
(step 40a), each as large. So a training step needs six FLOPs for each weight and each example. The
first layer needs less, for its input is data and needs no gradient (step 62b). call_node (step 83c)
counts those inputs of a node that need one.

The trap: FLOPs are not time. What is not a product counts as none here, and step 83c has shown how
long it takes.

PyTorch: torch.utils.flop_counter.FlopCounterMode counts the same, and convolutions and attention.

New: FlopCounterMode.
Try: randn(128, 64, requires_grad=True) for x. How many FLOPs has the training step, and why?
"""

import tinytorch.ops.sampling  # noqa: F401 (so that the layers can draw their weights)
from tinytorch.autograd.backward import backward  # noqa: F401 (gives Tensor backward)
from tinytorch.autograd.engine import NodeMode
from tinytorch.nn.functional import cross_entropy
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.random import manual_seed, randint, randn


class FlopCounterMode(NodeMode):
    """`with FlopCounterMode() as counter:` adds up the FLOPs of products, and of their backward."""

    def __init__(self):
        self.flops = 0
        self.of_node = {}  # the FLOPs of the product that a node belongs to

    def call(self, function, args):
        result = function.apply(*args)
        if function.__name__ in ("Addmm", "MatMul"):
            flops = 2 * result.numel() * args[0].shape[-1]
            self.flops += flops
            self.of_node[result.grad_fn] = flops
        return result

    def call_node(self, step, node, grad, as_tensors):
        if node in self.of_node:
            needed = [edge for edge in node.edges[:2] if edge is not None]  # not that of a bias
            self.flops += len(needed) * self.of_node[node]
        return step(node, grad, as_tensors)

    def get_total_flops(self):
        return self.flops


if __name__ == "__main__":
    manual_seed(0)
    model = Sequential(Linear(64, 256), ReLU(), Linear(256, 256), ReLU(), Linear(256, 10))
    x, t = randn(128, 64), randint(0, 10, (128,))

    with FlopCounterMode() as forward:
        model(x)
    with FlopCounterMode() as training:
        cross_entropy(model(x), t).backward()
    print(f"forward       {forward.get_total_flops():11,}")  # -> forward        21,626,880
    print(f"training step {training.get_total_flops():11,}")  # -> training step  60,686,336

    weights = [p.numel() for p in model.parameters() if p.ndim == 2]
    print(f"6 * weights * examples {6 * sum(weights) * 128:11,}")
    # -> 6 * weights * examples  64,880,640
    print(f"less the first layer's {6 * sum(weights) * 128 - 2 * weights[0] * 128:11,}")
    # -> less the first layer's  60,686,336

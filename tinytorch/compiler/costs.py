"""What operations cost: asked before a value is computed a second time rather than kept."""

from tinytorch.compiler.operations import LIBRARY

# What one element of an operation costs, in additions. What is not in the table costs one.
COSTS = {name: function.cost for name, function in LIBRARY.items()} | {
    **dict.fromkeys("divide reciprocal".split(), 4),
    **dict.fromkeys("remainder floor_divide".split(), 20),
    "logaddexp": 40,
}

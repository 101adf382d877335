"""Functions of functions, and a module as a function of its parameters, as torch.func has them."""

from tinytorch.func.calls import functional_call
from tinytorch.func.transforms import (
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

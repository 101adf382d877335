"""PyTorch's own samples of its operations, carried over to tinytorch.

`op_db` is the table with which PyTorch tests itself: for each operation it makes inputs (broadcast,
empty, 0-d, non-contiguous, ...) and wrong inputs with the error that they should raise. What
tinytorch has is found by name, so an operation takes part as soon as it is there.
"""

import collections
import functools
import warnings

import numpy as np
import torch

import tinytorch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo import core

# Two things that PyTorch does with the whole call stack, nine tenths of the time of these tests: it
# seeds before each sample, and notes for each kind of device that is not there who asked for that;
# and it looks for the unittest that asks for samples, which there is not.
for devices in (torch.cuda, torch.mtia, torch.xpu):
    if not devices.is_available():
        devices.manual_seed_all = lambda seed: None
for module in (common_utils, core):
    module.extract_test_fn = lambda: None

Tensor = tinytorch.Tensor
MOST = 24  # samples of one operation and dtype; taken evenly from all that there are
FEW = 5  # where the dtype or the form of the call is not the first that is tried

# Operations whose samples are not the arguments of the function of that name.
CALLS = {
    "einsum": lambda tensors, equation: tinytorch.einsum(equation, tensors),
    "where": lambda self, condition, other: tinytorch.where(condition, self, other),
    "zero_": lambda x: x.clone().zero_(),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "nn.functional.embedding": lambda weight, index, **options: tinytorch.nn.functional.embedding(
        index, weight, **options
    ),
    "nn.functional.embedding_bag": lambda weight, index, **options: (
        tinytorch.nn.functional.embedding_bag(index, weight, **options)
    ),
}
# Their values are random or uninitialised: shapes and dtypes are compared.
RANDOM = {
    "bernoulli",
    "empty",
    "empty_like",
    "multinomial",
    "new_empty",
    "normal",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
}
# Options that take the random numbers out of the samples of an operation.
NOT_RANDOM = {
    "nn.functional.multi_head_attention_forward": {"training": False},
    "nn.functional.scaled_dot_product_attention": {"dropout_p": 0.0},
}
# Chains of products, whose differences in rounding are larger than those of one operation.
LOOSE = {
    "nn.functional.multi_head_attention_forward": 3,
    "nn.functional.scaled_dot_product_attention": 3,
}
# Which of several equal elements they name is open: PyTorch's sorts are not stable. Where elements
# repeat, as integers and booleans do, indices are compared by shape and dtype.
UNSTABLE = {"argsort", "kthvalue", "median", "sort", "topk"}
# PyTorch rounds after each addition of halves; ours are compared with its float32 results, rounded.
ROUNDED_OFTEN = {
    "histc",
    "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d",
    "nn.functional.grid_sample",
}
# Arguments that tinytorch leaves out everywhere.
ABSENT_ARGUMENTS = {
    "out",
    "memory_format",
    "layout",
    "names",
    "reduce",
}
# Entries of op_db (with their variant) that tinytorch leaves out, or tests elsewhere as random.
LEFT_OUT = {
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "norm.nuc",
    "normal.in_place",
    "as_strided.partial_views",  # shows memory around a sample, which is not carried over
    "scatter_reduce.prod",
    "to_sparse",  # its result is not a tensor of all elements: tests/ops has its tests
}

# What tinytorch refuses with an error where PyTorch has an answer: part of the message, and why.
REFUSED = {
    "this activation is not implemented for": "relu alone takes integers",
    "mean(): input dtype must be": "means of integers",
    "norm(): Expected a floating point tensor": "cosines of integers",
    "a weighted mean is not implemented": "PyTorch resizes uint8 images with rounding of its own",
    "modified by an inplace operation": "overwrites what its own backward needs",
    "sparse gradients are not supported": "there are no sparse tensors",
    "scaling the gradient by the frequency": "PyTorch counts other indices in bags, on the CPU",
}

compared = collections.Counter()
left_out = collections.Counter()


class Unsupported(Exception):
    """A sample asks for something that tinytorch leaves out on purpose; the text says what."""


def name_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def find(name):
    """tinytorch's function or method for an operation of op_db, or None."""
    try:
        function = functools.reduce(getattr, name.split("."), tinytorch)
    except AttributeError:
        function = None
    if function is None or isinstance(function, tinytorch.dtype) or not callable(function):
        function = Tensor.__dict__.get(name)
    if function is not None and name in CALLS:
        return CALLS[name]
    return function if callable(function) else None


def dtype_of(name):
    """The dtype of tinytorch with the name of one of PyTorch."""
    found = getattr(tinytorch, str(name).removeprefix("torch."), None)
    if not isinstance(found, tinytorch.dtype):
        raise Unsupported(f"dtype {name}")
    return found


def carry_tensor(x):
    if x.layout != torch.strided or x.is_quantized or x.device.type != "cpu":
        raise Unsupported(f"layout {x.layout} on {x.device.type}")
    if x.ndim > 64:
        raise Unsupported("more dimensions than NumPy has")
    dtype = dtype_of(x.dtype)
    if dtype is tinytorch.bfloat16:
        array = x.detach().contiguous().view(torch.int16).numpy().view(dtype.numpy)
    else:
        array = x.detach().numpy(force=True)
    if 0 in array.strides:  # an expanded one: its elements, once, and expanded again
        once = array[tuple(slice(None, None if step else 1) for step in array.strides)]
        array = np.broadcast_to(once.copy(), array.shape)
    else:
        array = array.copy(order="K")  # keeps a transposed layout
    out = tinytorch.from_numpy(array)
    return out.requires_grad_() if x.requires_grad else out


def carry(value, seen):
    """A sample's argument for tinytorch. `seen` keeps a tensor that comes twice one tensor."""
    if isinstance(value, torch.Tensor):
        if id(value) not in seen:
            seen[id(value)] = (value, carry_tensor(value))
        return seen[id(value)][1]
    if isinstance(value, torch.dtype):
        return dtype_of(value)
    if isinstance(value, (torch.layout, torch.memory_format)):
        raise Unsupported(str(value))
    if isinstance(value, (torch.device, torch.Generator)):
        return "cpu" if isinstance(value, torch.device) else tinytorch.Generator()
    if isinstance(value, torch.Size):
        return tinytorch.Size(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(carry(item, seen) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(carry(item, seen) for item in value)
    if isinstance(value, dict):
        return {key: carry(item, seen) for key, item in value.items()}
    if isinstance(value, complex):
        raise Unsupported("complex numbers")
    return value


def carry_sample(sample, method=False):
    """(args, kwargs) for tinytorch, and the pairs of tensors that require gradients."""
    seen = {}
    for name, value in sample.kwargs.items():
        absent = name in ABSENT_ARGUMENTS
        if absent and value not in (None, torch.strided, torch.preserve_format):
            raise Unsupported(f"argument {name}=")
    kwargs = {name: v for name, v in sample.kwargs.items() if name not in ABSENT_ARGUMENTS}
    if not isinstance(sample.input, (torch.Tensor, tuple, list)) and method:
        raise Unsupported("a method without its tensor")
    args = tuple(carry(value, seen) for value in (sample.input, *sample.args))
    kwargs = carry(kwargs, seen)
    return args, kwargs, [pair for pair in seen.values() if pair[0].requires_grad]


def some(values, most):
    """At most so many of the values, evenly spread, the same ones each time."""
    values = list(values)
    step = max(1, -(-len(values) // most))
    return values[::step]


def samples_of(op, dtype, requires_grad, most=MOST):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        found = some(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), most)
    for sample in found:
        sample.kwargs.update(NOT_RANDOM.get(op.name, {}))
    return found


def error_samples_of(op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        return [] if op.error_inputs_func is None else list(op.error_inputs("cpu"))


def operations():
    """The entries of op_db that tinytorch has."""
    return [op for op in op_db if name_of(op) not in LEFT_OUT and find(op.name) is not None]

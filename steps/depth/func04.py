"""Step func04: Legacy names: FloatTensor, Variable, type()

Programs from 2017 use names that PyTorch no longer needs:

    x = Variable(torch.FloatTensor([3, 2]), requires_grad=True)
    y = labels.type(torch.LongTensor)

In those years one name gave the type and the device of a tensor, and a tensor had to be put into a
Variable before it could be differentiated, as in our first steps. Such programs still run in
PyTorch, and many of the best tutorials are among them. So they run here.

Variable(x) is easy: a new leaf on the same memory. FloatTensor is used in two ways: as a function
that makes a tensor, and in isinstance(x, FloatTensor), which asks for the type of the elements. But
it is not a class: all our tensors are Tensors. An object can answer to both uses if it has the
methods `__call__` and `__instancecheck__`.

x.type(LongTensor) converts the elements; it takes a dtype or the name of such a class, too. Without
an argument it returns the name of the tensor's own class in those years.

New: TypedTensor, FloatTensor, LongTensor and so on, Tensor.type, Tensor.new,
set_default_tensor_type, variable.
Try: remove `__instancecheck__`, and read what Python says of isinstance.
"""

import importlib
from typing import Any

from tinytorch.core import dtype as types
from tinytorch.core.device import cpu
from tinytorch.core.tensor import Size, Tensor, tensor, tensor_method
from tinytorch.ops.conversion import to
from tinytorch.ops.creation import empty

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class TypedTensor:
    """FloatTensor and its kin, which older programs use as if they were classes.

    FloatTensor(2, 3) is a new tensor of that shape on the CPU, FloatTensor([1, 2]) one of these
    elements, and isinstance(x, FloatTensor) asks for the element type of x.
    """

    def __init__(self, dtype: types.DType):
        self.dtype = dtype

    def __call__(self, *data: Any) -> Tensor:
        if len(data) == 1 and not isinstance(data[0], (int, Size)):
            return tensor(data[0], dtype=self.dtype)
        return empty(*data or (0,), dtype=self.dtype)

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dtype is self.dtype and x.device is cpu


FloatTensor = TypedTensor(types.float32)
LongTensor = TypedTensor(types.int64)
DoubleTensor = TypedTensor(types.float64)
IntTensor = TypedTensor(types.int32)
ByteTensor = TypedTensor(types.uint8)
BoolTensor = TypedTensor(types.bool_)
HalfTensor = TypedTensor(types.float16)
ShortTensor = TypedTensor(types.int16)
CharTensor = TypedTensor(types.int8)


# The types whose names in those years were not "Bool", "Int" and "Float".
KINDS = {
    **{"uint8": "Byte", "int8": "Char", "int16": "Short", "int64": "Long"},
    **{"float16": "Half", "bfloat16": "BFloat16", "float64": "Double"},
}


def class_name(dtype: types.DType) -> str:
    """The name of a class of tensors in those years: FloatTensor, LongTensor."""
    return KINDS.get(dtype.name, dtype.name.rstrip("_0123456789").capitalize()) + "Tensor"


@tensor_method("type")
def type_of(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The tensor with another element type, given as a dtype, as FloatTensor or LongTensor, or as
    the name of such a class; Tensor stands for the default type. Without one, the name of its own
    class in those years, such as "tinytorch.FloatTensor".

    Raises:
        ValueError: there is no class of that name.
    """
    if dtype is None:
        return f"tinytorch.{'cuda.' if self.is_cuda else ''}{class_name(self.dtype)}"
    if isinstance(dtype, str):
        package, _, name = dtype.rpartition(".")
        named = {class_name(each): each for each in types.DType.by_name.values()}
        if not package or name not in named:
            raise ValueError(f"invalid type: '{dtype}'")
        return to(self, "cuda" if package.endswith("cuda") else cpu, named[name])
    dtype = types.get_default_dtype() if dtype is Tensor else getattr(dtype, "dtype", dtype)
    return to(self, dtype=dtype, non_blocking=non_blocking)


@tensor_method("new")
def new(self: Tensor, *data: Any) -> Tensor:
    """What the class of the tensor made in those years: x.new(2, 3), or x.new([1, 2]), of the type
    and on the device of x."""
    return TypedTensor(self.dtype)(*data).to(self.device)


def set_default_tensor_type(t: Any) -> None:
    """set_default_dtype, by FloatTensor or DoubleTensor, or by the name "torch.DoubleTensor".

    Raises:
        TypeError: the type is not of floats.
    """
    types.set_default_dtype(empty(0).type(t).dtype)


def variable(data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Tensor:
    """autograd.Variable, which Tensor has replaced: a new leaf that shares the memory of `data`.
    `volatile` was what no_grad is now, and has no effect, as in PyTorch."""
    return data.detach().requires_grad_(requires_grad)


if __name__ == "__main__":
    importlib.import_module("tinytorch.autograd.backward")

    # As it was written in 2017.
    w = variable(FloatTensor([3.0, 2.0]), requires_grad=True)
    loss = (w * w).sum()
    loss.backward()
    print(w.grad.tolist())  # -> [6.0, 4.0]
    labels = w.detach().type(LongTensor)
    print(isinstance(labels, LongTensor), labels.tolist())  # -> True [3, 2]
    print(labels.type(), w.type())  # -> tinytorch.LongTensor tinytorch.FloatTensor
    print(labels.type("torch.FloatTensor").dtype, (labels > 2).type(Tensor).tolist())
    # -> tinytorch.float32 [1.0, 0.0]
    try:
        labels.type("FloatTensor")
    except ValueError as error:
        print(error)  # -> invalid type: 'FloatTensor'
    print(isinstance(labels, FloatTensor), FloatTensor(2, 3).shape)
    # -> False tinytorch.Size([2, 3])
    print(ByteTensor([1, 0]).dtype, DoubleTensor([1, 0]).dtype, IntTensor([1.9]).tolist())
    # -> tinytorch.uint8 tinytorch.float64 [1]
    state = w.detach().new(2, 3).zero_()
    print(state.shape, labels.new([5]).type())  # -> tinytorch.Size([2, 3]) tinytorch.LongTensor
    set_default_tensor_type("torch.DoubleTensor")
    print(tensor(0.5).dtype)  # -> tinytorch.float64
    set_default_tensor_type(FloatTensor)

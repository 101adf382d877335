"""Step 37: Data in and out

A tensor is worth little if data gets in slowly, wrongly or not at all. This step finishes the class
and everything that makes tensors; only operations come later, and those attach themselves.

There are two ways in, and the difference is memory. tensor(data) copies: nothing that happens to
data afterwards is seen. from_numpy(array) does not: tensor and array are two names of one memory,
and a write into one shows in the other. Out it goes the same two ways: x.numpy() shares the memory,
x.tolist() and x.item() are copies in Python's own numbers. x.numpy() is refused where it would
do harm: for a tensor that requires gradients, since a write into the array would be seen by no
graph, and for a tensor on another device, since a copy should be asked for.

Lists are measured before anything is made of them. A list whose rows differ in length is an error
that names the dimension. So is a value that does not fit its type: nothing is cut off in silence.

Who shares memory with whom? Every array that is a view knows its base, and at the end of that chain
stands the array that owns the memory: its storage. version.py counts writes by storage: after
count_write(x.array) all views of x have a new version. A weak reference watches the storage, and
when it dies its count is forgotten. Writes.count numbers all writes, whatever storage they went to:
a clock. Who has noted its time can ask later whether a storage was written since, as step 40 does.

copy.deepcopy and pickle take leaves only. Half of a graph would be of no use to anybody.

Some attributes of the class are for later steps (_hooks, _base, _inference), and _follow_base,
which it calls for a view, is attached in step 40: a finished module is not opened again.

Changed: Tensor is finished, and its printing a function. New: from_numpy, as_tensor, Tensor.numpy,
data, _version, Tensor(2, 3). Modules finished: core/tensor.py, core/version.py.
Try: from_numpy(np.arange(3.0)[::-1]), an array with a negative stride. What does the error advise?
"""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.device import Device, as_device, cpu, device_of
from tinytorch.core.dtype import Defaults, DType, as_dtype, number_dtype, numpy_dtype, promote_types


class Writes:
    """The number of all writes in place so far, of whatever storage: a clock for them."""

    count = 0


# id of a storage -> [weak reference to it, number of its writes, Writes.count at the last one]
written: dict[int, list] = {}


def storage_of(array: Any) -> Any:
    """The array that owns the memory of `array`: the same one for all views of it."""
    while array.base is not None and hasattr(array.base, "base"):
        array = array.base
    return array


def version_of(array: Any) -> int:
    """How often the memory of `array` was written in place, through whatever view."""
    entry = written.get(id(storage_of(array)))
    return 0 if entry is None else entry[1]


def written_since(array: Any, time: int) -> bool:
    """Whether the memory of `array` was written after Writes.count was `time`."""
    entry = written.get(id(storage_of(array)))
    return entry is not None and entry[2] > time


def count_write(array: Any) -> None:
    """Notes one write into the memory of `array`. The count is forgotten with the storage."""
    storage = storage_of(array)
    key = id(storage)
    entry = written.get(key)
    if entry is None:
        entry = written[key] = [weakref.ref(storage, lambda _: written.pop(key, None)), 0, 0]
    Writes.count += 1
    entry[1] += 1
    entry[2] = Writes.count


class Size(tuple):
    """The shape of a tensor: a tuple that prints as PyTorch's and knows its number of elements."""

    def __repr__(self) -> str:
        return f"tinytorch.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, index):
        part = tuple.__getitem__(self, index)
        return Size(part) if isinstance(index, slice) else part

    def __add__(self, other):
        return Size(tuple(self) + tuple(other))

    def numel(self) -> int:
        return int(np.prod(self, dtype=np.int64))


class Tensor:
    """An n-dimensional array that can be differentiated.

    Attributes:
        array: the NumPy (or CuPy) array with the elements; the graph does not see changes of it.
        device: the Device where the array lives.
        requires_grad: whether gradients flow to this tensor.
        grad: what backward() has accumulated here, or None.
        grad_fn: the Function call that made this tensor, or None for a leaf.

    Operations are not in this class. Each one attaches its methods where it is defined: see
    `tensor_method`.

    `Tensor(2, 3)` is an uninitialised float tensor of that shape, `Tensor([1, 2])` a float tensor
    of these values, as in PyTorch; prefer `tensor(...)`, which keeps the type of its data.
    """

    # What most tensors never change is written once, here, and not into each of them.
    array: Any
    device: Device
    _requires_grad = False
    _grad_fn = None
    _output_nr = 0  # which of the outputs of grad_fn this is
    _grad = None
    _hooks = None  # called with each gradient of this leaf
    _after_hooks = None  # called when this leaf's grad has been added to
    _inference = False  # made in inference mode
    retains_grad = False
    n_outputs = 0  # in the graph a leaf is an end: a Function has 1 or more
    _base = None  # of a view: the tensor whose memory it shows,
    _base_fn = None  # that tensor's grad_fn when this view was made,
    _view_calls = ()  # and the calls (Function, parameters) that lead from it to this view
    __array_ufunc__ = None  # numpy_array + tensor is our business, not NumPy's

    def __init__(self, *data: Any, device: Any = None):
        if len(data) == 1 and not isinstance(data[0], int):
            made = tensor(data[0], dtype=Defaults.dtype, device=device)
            self.array, self.device = made.array, made.device
        else:
            self.device = as_device(device)
            shape = data if data else (0,)
            self.array = self.device.xp.empty(shape, numpy_dtype(Defaults.dtype))

    # What a tensor is like.

    @property
    def shape(self) -> Size:
        return Size(self.array.shape)

    @property
    def dtype(self) -> DType:
        return DType.by_numpy[self.array.dtype]

    @property
    def ndim(self) -> int:
        return self.array.ndim

    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or the length of dimension `dim`. IndexError where there is no such one."""
        if dim is None:
            return self.shape
        if not -max(self.array.ndim, 1) <= dim < max(self.array.ndim, 1) or not self.array.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of "
                f"[{-self.array.ndim}, {self.array.ndim - 1}], but got {dim})"
                if self.array.ndim
                else "Dimension specified as 0 but tensor has no dimensions"
            )
        return self.array.shape[dim]

    def dim(self) -> int:
        return self.array.ndim

    ndimension = dim

    def numel(self) -> int:
        return int(self.array.size)

    nelement = numel

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.array.itemsize

    @property
    def itemsize(self) -> int:
        return self.array.itemsize

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return False

    def is_signed(self) -> bool:
        return self.dtype.is_signed

    def get_device(self) -> int:
        return -1 if self.device.index is None else self.device.index

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    # Its place in the graph.

    @property
    def requires_grad(self) -> bool:
        if self._base is not None:
            self._follow_base()
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self._grad_fn is not None:
            if not value:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to "
                    "use a computed variable in a subgraph that doesn't require differentiation "
                    "use var_no_grad = var.detach()."
                )
            return
        if value and not self.dtype.is_floating_point:
            raise RuntimeError(
                f"only Tensors of floating point dtype can require gradients, this one is "
                f"{self.dtype!r}"
            )
        if value and self._inference:
            raise RuntimeError("Setting requires_grad=True on inference tensor is not allowed.")
        self._requires_grad = bool(value)

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        """Sets requires_grad in place and returns the tensor. RuntimeError for integer types."""
        self.requires_grad = requires_grad
        return self

    @property
    def grad_fn(self):
        if self._base is not None:
            self._follow_base()
        return self._grad_fn

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def output_nr(self) -> int:
        return self._output_nr

    @property
    def grad(self) -> "Tensor | None":
        return self._grad

    @grad.setter
    def grad(self, grad: "Tensor | None") -> None:
        if grad is not None:
            if not isinstance(grad, Tensor):
                raise TypeError(f"assigned grad expected to be a Tensor or None but got {grad!r}")
            for name in ("shape", "dtype", "device"):
                mine, theirs = getattr(self, name), getattr(grad, name)
                if mine != theirs:
                    raise RuntimeError(
                        f"assigned grad has data of a different {name}: {theirs} for a tensor "
                        f"with {mine}"
                    )
        self._grad = grad

    def detach(self) -> "Tensor":
        """The same memory as a tensor of its own, outside the graph."""
        # A view, not the same object: a graph tells saved arrays by who they are.
        out = wrap(self.array.view(), self.device)
        if self._inference:
            out._inference = True
        return out

    def detach_(self) -> "Tensor":
        """Takes this tensor itself out of the graph. RuntimeError for a view."""
        if self._base is not None:
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        self._requires_grad, self._grad_fn, self._output_nr = False, None, 0
        return self

    @property
    def data(self) -> "Tensor":
        return self.detach()

    @data.setter
    def data(self, new: "Tensor") -> None:
        if not isinstance(new, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(new).__name__}")
        self.array, self.device = new.array.view(), new.device

    @property
    def _version(self) -> int:
        return version_of(self.array)

    def is_inference(self) -> bool:
        return self._inference

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape as a plain tuple: what a backward pass asks a node or a leaf for."""
        return self.array.shape

    # Out of tinytorch, into Python and NumPy.

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The elements as a numpy.ndarray that shares the memory where that is possible.

        RuntimeError for a tensor that requires grad, TypeError for one on another device; with
        force=True it is detached and copied to the host instead.
        """
        if not force:
            if self.requires_grad:
                raise RuntimeError(
                    "Can't call numpy() on Tensor that requires grad. "
                    "Use tensor.detach().numpy() instead."
                )
            if self.device is not cpu:
                raise TypeError(
                    f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() "
                    f"to copy the tensor to host memory first."
                )
        return self.device.backend.to_numpy(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number for a 0-d tensor."""
        return self.numpy(force=True).tolist()

    def item(self) -> int | float | bool:
        """The only element as a Python number. RuntimeError where there are more, or none."""
        if self.array.size != 1:
            raise RuntimeError(
                f"a Tensor with {self.array.size} elements cannot be converted to Scalar"
            )
        return self.array.item()

    def __bool__(self) -> bool:
        if self.array.size != 1:
            many = "no values" if self.array.size == 0 else "more than one value"
            raise RuntimeError(f"Boolean value of Tensor with {many} is ambiguous")
        return bool(self.array.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.is_floating_point or self.array.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        if self.array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.array.shape[0]

    def __format__(self, spec: str) -> str:
        if self.array.ndim == 0 and type(self) is Tensor:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    # Tensors are told apart by who they are: == compares elements, and a graph keeps them in sets.
    __hash__ = object.__hash__

    def __reduce__(self):
        if self.grad_fn is not None:
            raise RuntimeError("only leaf tensors can be pickled: call detach() first")
        return unpickle, (type(self), self.numpy(force=True), self.device, self._requires_grad)

    def __deepcopy__(self, memo: dict) -> "Tensor":
        if self.grad_fn is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment."
            )
        if id(self) not in memo:
            copy = memo[id(self)] = object.__new__(type(self))
            copy.__dict__.update(self.__dict__)
            for name in ("_base", "_base_fn", "_view_calls", "_hooks", "_after_hooks"):
                copy.__dict__.pop(name, None)
            copy.array = self.array.copy()
            copy._grad = None if self._grad is None else self._grad.__deepcopy__(memo)
        return memo[id(self)]


def unpickle(cls: type, array: np.ndarray, device: Device, requires_grad: bool) -> Tensor:
    """A tensor from what Tensor.__reduce__ wrote; hooks stay behind, as in PyTorch."""
    out = wrap(device.backend.from_numpy(array, device.index), device, cls)
    out._requires_grad = requires_grad
    return out


def wrap(array: Any, device: Device, cls: type = Tensor) -> Tensor:
    """A tensor around an array of `device`, without history. No copy, no check."""
    out = object.__new__(cls)
    out.array = array
    out.device = device
    return out


def tensor_method(*names: str) -> Callable:
    """Attaches a function to Tensor as a method: `@tensor_method("add", "__add__")`.

    The package never defines a method twice: RuntimeError. Only a program that you run yourself
    (a step, a notebook) may put its own version in the place of the package's.
    """

    def attach(function: Callable) -> Callable:
        for name in names:
            written = getattr(function, "fget", function)  # a property hides its function
            if name in Tensor.__dict__ and written.__module__ != "__main__":
                raise RuntimeError(f"Tensor has a method '{name}' already")
            setattr(Tensor, name, function)
        return function

    return attach


def scan(data: Any, depth: int = 1) -> tuple[Any, tuple[int, ...], DType | None]:
    """Nested data as (plain lists and numbers, shape, type). `depth` is for messages."""
    if isinstance(data, Tensor):
        return data.tolist(), data.array.shape, data.dtype
    if isinstance(data, (np.ndarray, np.generic)):
        return data.tolist(), data.shape, as_dtype(data.dtype)
    if isinstance(data, (list, tuple, range)):
        parts, shape, dtype = [], None, None
        for item in data:
            part, its_shape, its_dtype = scan(item, depth + 1)
            if shape is not None and its_shape != shape:
                raise ragged(shape, its_shape, depth)
            parts.append(part)
            shape = its_shape
            if its_dtype is not None:
                dtype = its_dtype if dtype is None else promote_types(dtype, its_dtype)
        return parts, (len(parts), *(shape or ())), dtype
    if isinstance(data, str):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    try:
        return data, (), number_dtype(data)
    except TypeError:
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}") from None


def ragged(expected: tuple[int, ...], found: tuple[int, ...], dim: int) -> Exception:
    """The error for two parts of one sequence, from dimension `dim` on, that differ in shape."""
    for a, b in zip(expected, found, strict=False):
        if a != b:
            return ValueError(f"expected sequence of length {a} at dim {dim} (got {b})")
        dim += 1
    return TypeError(f"expected only numbers or only sequences at dim {dim}, got both")


def host_array(data: Any, dtype: DType | None) -> np.ndarray:
    """A new NumPy array with the elements of `data`; PyTorch's type where `dtype` is None."""
    if isinstance(data, (np.ndarray, np.generic)):
        return np.array(data, dtype=numpy_dtype(as_dtype(data.dtype) if dtype is None else dtype))
    if type(data) in (float, int, bool):
        found = number_dtype(data)
    else:
        data, _, found = scan(data)
    wanted = numpy_dtype((found or Defaults.dtype) if dtype is None else dtype)
    if wanted.kind in "iu" and found is not None and found.is_floating_point:
        values = np.trunc(np.array(data, dtype=np.float64))
        array = values.astype(wanted)
        if (array != values).any():
            wrong = np.extract(array != values, values)[0]
            raise RuntimeError(f"value cannot be converted to {dtype!r} without overflow: {wrong}")
        return array
    try:
        return np.array(data, dtype=wanted)
    except OverflowError as error:
        raise RuntimeError(f"value cannot be converted to {dtype or found}: {error}") from None


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new leaf tensor with a copy of `data`: a number, nested sequences, an array, a tensor.

    Python floats become the default type, ints int64, bools bool; arrays and tensors keep theirs.
    Raises ValueError for ragged sequences, TypeError for strings, RuntimeError for other objects.
    """
    if isinstance(data, Tensor):
        device = data.device if device is None else device
        data = data.numpy(force=True)
    device = as_device(device)
    array = host_array(data, None if dtype is None else as_dtype(dtype))
    out = wrap(device.backend.from_numpy(array, device.index), device)
    if requires_grad:
        out.requires_grad = True
    return out


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor, without a copy where it already is an array or tensor as asked for."""
    if isinstance(data, Tensor):
        return data if dtype is None and device is None else data.to(device=device, dtype=dtype)
    if isinstance(data, np.ndarray) and device is None and dtype in (None, as_dtype(data.dtype)):
        return from_numpy(data)
    return tensor(data, dtype=dtype, device=device)


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor on the memory of a NumPy array: a change of one is a change of the other.

    TypeError where it is no array, or of an element type that tinytorch does not have; ValueError
    for negative strides.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    as_dtype(array.dtype)
    if any(stride < 0 for stride in array.strides):
        raise ValueError(
            "At least one of the strides of the array is negative, and tensors with negative "
            "strides are not supported. Make a copy first: array.copy()"
        )
    return wrap(array.view(), device_of(array))


def is_tensor(obj: Any) -> bool:
    return isinstance(obj, Tensor)


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


if __name__ == "__main__":
    import copy
    import pickle

    def error(action, *args, **kwargs):
        try:
            action(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError) as reason:
            return f"{type(reason).__name__}: {reason}"

    array = np.array([1.0, 2.0, 3.0], np.float32)
    copied, shared = tensor(array), from_numpy(array)
    array[0] = 100.0
    print(copied, shared)  # -> tensor([1.0, 2.0, 3.0]) tensor([100.0, 2.0, 3.0])
    print(np.shares_memory(shared.numpy(), array), as_tensor(shared) is shared)  # -> True True
    print(tensor(2.5).item() * 2, int(tensor([7])), [10, 20, 30][tensor(1)])  # -> 5.0 7 20

    w = tensor([1.0, 2.0], requires_grad=True)
    print(error(w.numpy).partition(" Use")[0])
    # -> RuntimeError: Can't call numpy() on Tensor that requires grad.
    print(error(tensor([1, 2]).requires_grad_).partition(",")[0])
    # -> RuntimeError: only Tensors of floating point dtype can require gradients
    print(w.detach().numpy())  # -> [1. 2.]
    print(error(tensor, [[[1], [2]], [[3], [4, 5]]]))
    # -> ValueError: expected sequence of length 1 at dim 2 (got 2)
    print(error(tensor, [1, [2]]))
    # -> TypeError: expected only numbers or only sequences at dim 1, got both
    print(error(tensor, [1, 2, 300], dtype=as_dtype("uint8")).partition(":")[0])  # -> RuntimeError
    print(error(w.item))
    # -> RuntimeError: a Tensor with 2 elements cannot be converted to Scalar
    print(error(setattr, w, "grad", tensor([1.0, 2.0, 3.0])).partition(":")[0])  # -> RuntimeError

    t = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    print(t.shape, t.shape[:1], t.numel(), t.element_size(), t.nbytes)
    # -> tinytorch.Size([2, 3]) tinytorch.Size([2]) 6 4 24
    print(error(t.size, 2))
    # -> IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)
    print(Tensor([1, 2]).dtype, Tensor(2, 3).shape)
    # -> tinytorch.float32 tinytorch.Size([2, 3])

    row = t.array[0]
    print(
        "a view knows its storage:", storage_of(row) is t.array
    )  # -> a view knows its storage: True
    print(t._version, len(written))  # -> 0 0
    count_write(row)
    print("a write through the view:", t._version, t.detach()._version, len(written))
    # -> a write through the view: 1 1 1
    del t, row
    print("forgotten with the storage:", len(written))  # -> forgotten with the storage: 0

    twin, back = copy.deepcopy(w), pickle.loads(pickle.dumps(w))
    print(twin, back.requires_grad, twin.array is w.array)  # -> tensor([1.0, 2.0]) True False

"""The tensor: an array with a device, a gradient and a place in the graph."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.arguments import check_flag, checked
from tinytorch.core.convert import host_array
from tinytorch.core.device import Device, as_device, cpu, device_of
from tinytorch.core.dtype import Defaults, DType, as_dtype, numpy_dtype
from tinytorch.core.state import state
from tinytorch.core.version import storage_of, version_of


class Size(tuple):
    """The shape of a tensor: a tuple that prints as PyTorch's and knows its number of elements."""

    def __repr__(self) -> str:
        return f"tinytorch.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, index):
        part = tuple.__getitem__(self, index)
        return Size(part) if isinstance(index, slice) else part

    def __add__(self, other):
        return Size(tuple(self) + tuple(other))

    def __radd__(self, other):
        return Size(tuple(other) + tuple(self))

    def __mul__(self, times):
        return Size(tuple(self) * times)

    __rmul__ = __mul__

    def numel(self) -> int:
        return int(np.prod(self, dtype=np.int64))


def copy_array(array: Any, device: Device, memo: dict) -> Any:
    """A copy for deepcopy. Copies of arrays that share memory share theirs."""
    owner, backend, size = storage_of(array), device.backend, array.itemsize
    key = id(owner), "memory"
    if key not in memo:
        memo[key] = owner.copy("K")
    memory = memo[key]
    if memory.strides != owner.strides or memory.dtype != array.dtype or not array.size:
        return array.copy()  # the owner's elements do not lie side by side, or are of another type
    place = (backend.address(array) - backend.address(owner)) // size
    flat = backend.strided(memory, (memory.size,), (size,))
    return backend.strided(flat[place:], array.shape, array.strides)


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

    # Defaults of what only some tensors change: read here, and not stored in each of them.
    array: Any
    device: Device
    _requires_grad = False
    _edge = None  # where a gradient of this tensor goes: (node, output number); None for a leaf
    _view = None  # of a view: how it came from its base (see autograd/views.py)
    _grad = None
    _hooks = None  # of a leaf: called with each of its gradients
    _after_hooks = None  # of a leaf: called when its grad has been added to
    # An edge of the graph may end at a leaf, which stands there for a node.
    sequence_nr = None
    several = False
    __array_priority__ = 1000  # numpy_array + tensor calls Tensor.__radd__, not NumPy's loop

    def __init__(self, *data: Any, device: Any = None):
        if len(data) == 1 and not isinstance(data[0], (int, np.integer, Size)):
            made = tensor(data[0], dtype=Defaults.dtype, device=device)
            self.array, self.device = made.array, made.device
        else:
            self.device = as_device(device)
            shape = data[0] if data and isinstance(data[0], Size) else data or (0,)
            self.array = self.device.xp.empty(shape, numpy_dtype(Defaults.dtype))

    # Its place in the graph.

    @property
    def requires_grad(self) -> bool:
        if self._view is not None:
            self._view.refresh(self)
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value is not True and value is not False:
            raise RuntimeError("requires_grad must be a bool")
        if self._edge is not None:
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
        self._requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        """Set requires_grad in place and return the tensor.

        Raises:
            RuntimeError: the element type is not a floating point type.
            TypeError: the argument is not a bool.
        """
        check_flag("requires_grad", requires_grad)
        self.requires_grad = requires_grad
        return self

    @property
    def grad_fn(self):
        if self._view is not None:
            self._view.refresh(self)
        return None if self._edge is None else self._edge[0]

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def output_nr(self) -> int:
        return 0 if self._edge is None else self._edge[1]

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
        return wrap(self.array.view(), self.device)

    def detach_(self) -> "Tensor":
        """Take this tensor itself out of the graph.

        Raises:
            RuntimeError: the tensor is a view.
        """
        if self._view is not None:
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        self._requires_grad, self._edge = False, None
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

    @property
    def _base(self) -> "Tensor | None":
        return None if self._view is None else self._view.base

    # What a tensor is like.

    @property
    def shape(self) -> Size:
        return Size(self.array.shape)

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> DType:
        return DType.by_numpy[self.array.dtype]

    def numel(self) -> int:
        return int(self.array.size)

    nelement = numel

    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or the length of dimension `dim`.

        Raises:
            IndexError: the tensor has no such dimension.
        """
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

    # Out of tinytorch, into Python and NumPy.

    def __len__(self) -> int:
        if self.array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.array.shape[0]

    def item(self) -> int | float | bool:
        """The only element as a Python number.

        Raises:
            RuntimeError: there is not exactly one element.
        """
        if self.array.size != 1:
            raise RuntimeError(
                f"a Tensor with {self.array.size} elements cannot be converted to Scalar"
            )
        return self.array.item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number for a 0-d tensor."""
        return self.numpy(force=True).tolist()

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The elements as a numpy.ndarray that shares the memory where that is possible.

        With force=True the tensor is detached, and copied to the host if it is elsewhere.

        Raises:
            RuntimeError: it requires grad and calls are recorded: the graph would not see a write.
            TypeError: it is on another device.
        """
        if not force:
            if state.grad_enabled and self.requires_grad:
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

    def __bool__(self) -> bool:
        if self.array.size != 1:
            many = "no values" if self.array.size == 0 else "more than one value"
            raise RuntimeError(f"Boolean value of Tensor with {many} is ambiguous")
        return bool(self.array.item())

    def __float__(self) -> float:
        return float(self.array.item())  # ValueError where there are more, or none

    def __int__(self) -> int:
        return int(self.array.item())

    def __index__(self) -> int:
        if self.dtype.is_floating_point or self.array.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __format__(self, spec: str) -> str:
        if self.array.ndim == 0 and type(self) is Tensor:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    # == compares elements; a tensor in a set or dict is compared by identity.
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
            copied = copy_array(self.array, self.device, memo)
            copy = memo[id(self)] = wrap(copied, self.device, type(self))
            copy._requires_grad = self._requires_grad
            copy._grad = None if self._grad is None else self._grad.__deepcopy__(memo)
            # Names that begin with _ are the package's own: views and hooks are not copied.
            own = {name: x for name, x in self.__dict__.items() if not name.startswith("_")}
            copy.__dict__.update({**own, "array": copy.array})
        return memo[id(self)]


def unpickle(cls: type, array: np.ndarray, device: Device, requires_grad: bool) -> Tensor:
    """A tensor from what Tensor.__reduce__ wrote; hooks stay behind, as in PyTorch."""
    out = wrap(device.backend.from_numpy(array, device.index), device, cls)
    out._requires_grad = requires_grad
    return out


def wrap(array: Any, device: Device, cls: type = Tensor) -> Tensor:
    """A tensor around an array of `device`, without history. No copy, no check."""
    out = object.__new__(cls)
    out.array, out.device = array, device
    # Each operation asks for these. Python finds them sooner in an object than in its class.
    out._requires_grad, out._edge, out._view = False, None, None
    return out


def tensor_method(*names: str) -> Callable:
    """Attach a function to Tensor as a method: `@tensor_method("add", "__add__")`.

    The function that this returns is checked. The method is not, to save a call: its first argument
    is a Tensor already. It is checked if it takes a second one, unless it is an operator.

    A program may replace a method of the package; another module of the package may not.

    Raises:
        RuntimeError: Tensor has this method already.
    """

    def attach(function: Callable) -> Callable:
        written = getattr(function, "fget", function)  # a property hides its function
        inside = written.__module__.partition(".")[0] == __name__.partition(".")[0]
        safe = checked(function) if written is function else function
        kinds = [each.annotation for each in inspect.signature(written).parameters.values()]
        several = kinds.count(Tensor) > 1
        for name in names:
            if name in Tensor.__dict__ and inside:
                raise RuntimeError(f"Tensor has a method '{name}' already")
            setattr(Tensor, name, safe if several and not name.startswith("__") else function)
        return safe

    return attach


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

    Raises:
        ValueError: a nested sequence is ragged.
        TypeError: there is a string among the data, or requires_grad is not a bool.
        RuntimeError: the type of an object cannot be inferred.
    """
    if isinstance(data, Tensor):
        device = data.device if device is None else device
        data = data.numpy(force=True)
    device = as_device(device)
    array = host_array(data, None if dtype is None else as_dtype(dtype))
    out = wrap(device.backend.from_numpy(array, device.index), device)
    if requires_grad is not False:
        out.requires_grad_(requires_grad)
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

    Raises:
        TypeError: it is not an array, or has an element type that tinytorch does not have.
        ValueError: a stride is negative.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    as_dtype(array.dtype)
    if any(stride < 0 for stride in array.strides):
        raise ValueError(
            "At least one of the strides of the array is negative, and tensors with negative "
            "strides are not supported. Make a copy first: array.copy()"
        )
    array = np.asarray(array)  # a subclass, such as np.memmap, as a plain array on the same memory
    return wrap(array.view(), device_of(array))


def is_tensor(obj: Any) -> bool:
    return isinstance(obj, Tensor)

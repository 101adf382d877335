"""Step tensor09: Arguments that are not tensors

Call a function with a number in place of a tensor, and this is the answer:

    expand(3, 2)     AttributeError: 'int' object has no attribute 'array'

It names neither the function nor the argument, only a detail of ours. PyTorch says

    TypeError: expand(): argument 'input' (position 1) must be Tensor, not int

because a parser compares the arguments of each call with the function's signature first. In Python
such a parser takes longer than a small operation. But a wrong argument nearly always makes the call
fail somewhere. So `checked` looks for it only then: it runs the function, and if that raises, binds
the arguments to the parameters and compares them with the annotations. If one does not fit, a
TypeError names it, with the first error as its cause. If all fit, the first error is passed on.

A call that succeeds costs one more Python call. The methods do not pay even that: x.expand(2)
starts from a tensor. So tensor_method returns the checked function, and attaches the function as it
is. A method that takes a second tensor, such as expand_as, is attached checked; operators never
are.

The trap is a wrong argument that does not make the call fail. `checked` cannot see it: a function
that would accept True as a size has to refuse it itself, as as_integer does.

Changed: tensor_method. New: expected_type, wrong_argument, checked.
Try: time expand(x, 2, 3) and x.expand(2, 3) with timeit.
"""

import copy
import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, TypeVar

import numpy as np

from tinytorch.autograd.errors import translate_error
from tinytorch.autograd.modes import call_through_modes
from tinytorch.core.convert import host_array
from tinytorch.core.device import Device, as_device, cpu, device_of
from tinytorch.core.dtype import (
    Defaults,
    DType,
    as_dtype,
    bfloat16,
    int64,
    numpy_dtype,
    result_type,
)
from tinytorch.core.state import open_modes, state
from tinytorch.core.version import (
    bump_version,
    last_write,
    modified_since,
    next_sequence_nr,
    storage_of,
    version_of,
)


def expected_type(value: Any, annotation: Any) -> str | None:
    """What an argument is not, but should be by the annotation of its parameter: "Tensor", "int" or
    "float". None if it is as it should be, and for other annotations, which are not checked."""
    kinds = annotation.__args__ if isinstance(annotation, types.UnionType) else (annotation,)
    names = [getattr(kind, "__name__", "") for kind in kinds if kind is not types.NoneType]
    if names not in (["Tensor"], ["int"], ["float"]) or (value is None and types.NoneType in kinds):
        return None
    if names == ["Tensor"]:
        return None if isinstance(value, annotation) else "Tensor"
    if names == ["float"]:
        return None if hasattr(value, "__float__") else "float"  # 1j has not
    try:
        operator.index(value)
        return "int" if isinstance(value, (bool, np.ndarray)) else None
    except TypeError:
        return "int"


def not_an_integer(value: Any) -> TypeError:
    """The error for a value that should be an integer. It names the function and the argument: the
    outermost function of this package that has the value among its arguments."""
    where, package, frame = "argument", __name__.partition(".")[0], sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        names, varargs, _, given = inspect.getargvalues(frame)
        for name in (*names, varargs):
            each = given.get(name)
            held = each is value or (type(each) in (tuple, list) and any(x is value for x in each))
            if held and name != "args":  # those are a wrapper's
                function = frame.f_code.co_name
                function = type(given[names[0]]).__name__ if function == "__init__" else function
                where = f"{function}(): argument '{name}'"
                break
        frame = frame.f_back
    return TypeError(f"{where} must be int, not {type(value).__name__}")


def check_flag(argument: str, value: Any, function: str = "") -> None:
    """Checks an argument that is True or False.

    Raises:
        TypeError: it is another value, such as 1. The error names the outermost function of the
            caller's package that has an argument of this name, or else `function`.
    """
    if value is True or value is False:
        return
    frame = sys._getframe(1)
    package = frame.f_globals["__name__"].partition(".")[0]
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        if argument in inspect.getargvalues(frame).args:
            function = frame.f_code.co_name
        frame = frame.f_back
    raise TypeError(f"{function}(): argument '{argument}' must be bool, not {value!r}")


def wrong_argument(function: Callable, args: tuple, kwargs: dict) -> TypeError | None:
    """PyTorch's error for the first argument that is not of its parameter's type, or None."""
    try:
        call = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:  # an argument is missing, or unknown: Python has said so
        return None
    parameters = call.signature.parameters
    for name, given in call.arguments.items():
        parameter, position = parameters[name], [*parameters].index(name) + 1
        for value in given if parameter.kind is parameter.VAR_POSITIONAL else (given,):
            kind = expected_type(value, parameter.annotation)
            if kind is not None:
                return TypeError(
                    f"{function.__name__}(): argument '{name}' (position {position}) must be "
                    f"{kind}, not {type(value).__name__}"
                )
    return None


# The type of a function, the same before and after: so editors know its arguments.
Called = TypeVar("Called", bound=Callable)


def checked(function: Called) -> Called:
    """The function, with its failures explained: TypeError if an argument is of a wrong type. A
    call that succeeds is not looked at, and pays for no check."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            wrong = wrong_argument(function, args, kwargs)
            if wrong is None:
                raise
            raise wrong from error

    return call


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
            copy = memo[id(self)] = wrap(self.array.copy(), self.device, type(self))
            copy._requires_grad = self._requires_grad
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


class View:
    """How a view came from its base.

    Attributes:
        base: the tensor that owns the memory; never a view itself.
        base_edge: the base's place in the graph when the view was made or refreshed.
        path: (path of the view that it was made from, call); that of the base is None. To
            copy all calls into a tuple would make a chain of n views take n^2 steps.
    """

    def __init__(self, base: Tensor, path: tuple):
        self.base, self.base_edge, self.path = base, base._edge, path

    @property
    def calls(self) -> list:
        """The (Function, parameters) that lead from the base to the view."""
        calls, path = [], self.path
        while path is not None:
            path, call = path
            calls.append(call)
        return calls[::-1]

    def refresh(self, view: Tensor) -> None:
        """Give `view` the history that its base has received from in-place writes since."""
        if self.base._edge is not self.base_edge:
            refresh_view_grad_fn(view)


def record_view(out: Tensor, source: Tensor, call: tuple) -> None:
    """Note that `out` was made from `source` by `call`, unless the call had to copy."""
    whole = source.array  # most often the owner of the memory, which NumPy notes as the base
    if out.array.base is whole or storage_of(out.array) is storage_of(whole):
        view = source._view
        base, path = (source, None) if view is None else (view.base, view.path)
        out._view = View(base, (path, call))


def refresh_view_grad_fn(tensor: Tensor) -> None:
    """Repeat the calls that made a view, on its base as it is in the graph now.

    Raises:
        RuntimeError: the view came from a user's Function.
    """
    view = tensor._view
    reshaped = view.base._view is not None  # in place, so the calls would not fit any more
    if reshaped or (tensor._edge is not None and tensor._edge[0].takes_tensors):
        name = "a function" if tensor._edge is None else tensor._edge[0].name()
        raise RuntimeError(
            f"the base of a view that {name} returned was changed in place. "
            f"Please clone() the result in its forward."
        )
    before = state.grad_enabled
    state.grad_enabled = True
    try:
        again = view.base
        for function, parameters in view.calls:
            again = function.apply(again, *parameters)
    finally:
        state.grad_enabled = before
    view.base_edge = view.base._edge
    if again._edge is not None:
        rebase_history(tensor, again._edge)


def rebase_history(tensor: Tensor, edge: Any) -> None:
    """Make `tensor` the result of another call: edge is (node, output number)."""
    tensor._requires_grad, tensor._edge = True, edge


new = object.__new__


NOTHING = ()  # what a call has saved that saved nothing


def sum_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum `array` over the dimensions along which `shape` is broadcast to the array's shape."""
    gap = array.ndim - len(shape)
    axes = (*range(gap), *(gap + i for i, n in enumerate(shape) if n == 1 != array.shape[gap + i]))
    if axes and array.dtype.itemsize == 2:  # halves are added up as float32, and rounded once
        return array.sum(axis=axes, dtype="float32").astype(array.dtype).reshape(shape)
    return array.sum(axis=axes).reshape(shape) if axes else array.reshape(shape)


class Function:
    """One call of an operation. The same object is `ctx` in forward, grad_fn of the result, and
    the node that a backward pass visits.

    A subclass writes two short methods:

        forward(ctx, *arrays)    arrays (and other parameters) in, array out, or a tuple of them
        backward(ctx, *grads)    gradient of each output in, gradient of each tensor input out

    backward runs on plain arrays, which is fast, or on Tensors when the gradient itself is to be
    differentiated. So its formula uses only what both have: operators, methods with the same
    meaning, functions of `ctx.xp` (numpy, cupy, or the class Tensor), and `ctx.call(Function, g)`.
    """

    # Declared by subclasses.
    differentiable = True
    elementwise = False  # inputs are broadcast against each other; their gradients are summed back
    view = False  # the result shows the memory of the first input
    takes_tensors = False  # backward takes Tensors, always (user-defined functions)

    # Of one call; most calls keep these.
    xp: Any = cpu.xp
    device: Device = cpu
    sequence_nr: int
    edges: Sequence  # for each argument (node or leaf, output number), or None without gradient
    outputs: Sequence  # (shape, dtype) of each result
    several = False  # the results came as a tuple
    saved: Any = NOTHING
    saves: Sequence[int | None]  # the role of each: i for input i, ~k for output k, None
    input_shapes: list | None = None  # where an input was broadcast
    hooks: dict | None = None  # {output number: hooks on the gradient of this output}
    materialize_grads = True  # backward gets zeros for an output that was not used

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward on the arrays of `args`, and record the call if a gradient may be needed."""
        if open_modes and state.modes:
            return call_through_modes(cls, args)
        ctx = new(cls)
        enabled = state.grad_enabled
        arrays, edges, device = [], [], None
        for x in args:
            edge = None
            if isinstance(x, Tensor):
                if x.device is not device:
                    if device is not None:
                        return cls.apply(*on_one_device(args))
                    device = x.device
                if x._view is not None:
                    x._view.refresh(x)
                if x._requires_grad:
                    edge = x._edge or (x, 0)
                x = x.array
            arrays.append(x)
            edges.append(edge)
        ctx.edges, ctx.device, ctx.xp = edges, device, device.xp
        try:
            result = cls.forward(ctx, *arrays)
        except MemoryError as error:
            raise RuntimeError(f"can't allocate memory: {error}") from error
        except (ValueError, TypeError) as error:
            translated = cls.translate_error(error, arrays)
            if translated is None:
                raise
            raise translated from error
        needed = any(edge is not None for edge in edges)
        record = needed and enabled and cls.differentiable
        if record:
            ctx.sequence_nr = next_sequence_nr()
        if isinstance(result, tuple):
            return ctx.several_outputs(result, record, args)
        device = ctx.device  # a transfer has changed it
        array = result if result.__class__ is device.array_type else ctx.as_array(result)
        out = wrap(array, device)
        if record:
            out._requires_grad, out._edge = True, (ctx, 0)
            ctx.outputs = ((array.shape, array.dtype),)
            ctx.saves = ctx.roles_of(arrays, (array,))
            if cls.elementwise:
                ctx.note_shapes(arrays, array.shape)
        if cls.view:
            record_view(out, args[0], ctx.view_call(0, args))
        return out

    def save_for_backward(ctx, *values: Any) -> None:
        """Keep arrays (or numbers, or None) for backward, where they are `ctx.saved`."""
        ctx.saved = values

    def as_array(ctx, result: Any) -> Any:
        """A 0-d result as an array: NumPy gives a scalar object for it, also to what is saved."""
        array = ctx.xp.asarray(result)
        if ctx.saved is not NOTHING:
            ctx.saved = tuple(array if value is result else value for value in ctx.saved)
        return array

    def several_outputs(ctx, results: tuple, record: bool, args: tuple) -> tuple:
        """The tensors of a call with several results. Those of integer type get no gradient."""
        arrays = [ctx.as_array(result) for result in results]
        outs = [wrap(array, ctx.device) for array in arrays]
        if record:
            ctx.record_outputs(outs)
            inputs = [x.array if isinstance(x, Tensor) else x for x in args]
            ctx.saves = ctx.roles_of(inputs, arrays)
        if ctx.view:
            for number, out in enumerate(outs):
                record_view(out, args[0], ctx.view_call(number, args))
        return tuple(outs)

    def record_outputs(ctx, outs: Sequence) -> None:
        """Make `outs` the results of this call: tensors, or None for what is not one. Those of
        integer type get no gradient."""
        ctx.several = True
        ctx.outputs = [None if x is None else (x.array.shape, x.array.dtype) for x in outs]
        for number, out in enumerate(outs):
            if out is not None and out.dtype.is_floating_point:
                out._requires_grad, out._edge = True, (ctx, number)

    def roles_of(ctx, inputs: Sequence, outputs: Sequence) -> list:
        """Which input or output each saved value is. All of them are alive now, so that `is` tells
        them apart; later an array may be replaced, or its id used again."""
        roles = []
        for value in ctx.saved:
            role = next((i for i, x in enumerate(inputs) if x is value), None)
            if role is None:
                role = next((~k for k, y in enumerate(outputs) if y is value), None)
            roles.append(role)
        return roles

    def view_call(ctx, number: int, args: tuple) -> tuple:
        """The (Function, parameters) that leads from the first input to view `number`."""
        return type(ctx), args[1:]

    def note_shapes(ctx, arrays: Sequence, shape: tuple[int, ...]) -> None:
        """Remember the shapes of the inputs if one that needs a gradient was broadcast."""
        for edge, x in zip(ctx.edges, arrays):  # noqa: B905 (strict= would take longer)
            if edge is not None and x.shape != shape:
                ctx.input_shapes = [getattr(x, "shape", None) for x in arrays]

    def sum_back(ctx, grads):
        """The gradients of inputs that were broadcast, summed where these were repeated."""
        sums = []
        for grad, shape in zip(grads, ctx.input_shapes, strict=True):
            if grad is not None and shape is not None and grad.shape != shape:
                grad = ctx.call(SumTo, grad, shape)
            sums.append(grad)
        return sums

    @classmethod
    def translate_error(cls, error: Exception, arrays: Sequence) -> Exception | None:
        """PyTorch's error in place of one that the array library raised; None for other errors."""
        return translate_error(error, cls.__name__, arrays)

    # For forward and backward of a subclass.

    @property
    def needs_input_grad(ctx) -> tuple[bool, ...]:
        """For each argument, whether a gradient has to be computed for it."""
        return tuple(edge is not None for edge in ctx.edges)

    def call(ctx, function: type["Function"], x: Any, *parameters: Any) -> Any:
        """Another operation inside backward: recorded for a Tensor, only computed for an array."""
        if isinstance(x, Tensor):
            return function.apply(x, *parameters)
        inner = new(function)
        inner.xp, inner.device = ctx.xp, ctx.device
        inner.edges = (None,) * (1 + len(parameters))
        return function.forward(inner, x, *parameters)

    def forward(ctx, *args: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no forward")

    def backward(ctx, *grads: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no backward")

    # For the engine.

    def gradients(ctx, grads: list) -> Any:
        """What backward returns, on Tensors, with what was saved as Tensors of the graph."""
        twin = copy.copy(ctx)
        twin.xp = Tensor
        twin.saved = tuple(ctx.saved_tensor(i) for i in range(len(ctx.saved)))
        return twin.backward(*grads)

    def saved_tensor(ctx, number: int) -> Any:
        """Saved value `number` as the tensor that it was. It is wrapped anew: had the call saved
        its output tensor, the two would keep each other alive."""
        value, role = ctx.saved[number], ctx.saves[number]
        if not hasattr(value, "dtype"):
            return value
        out = wrap(ctx.device.xp.asarray(value), ctx.device)
        edge = None if role is None else ctx.edges[role] if role >= 0 else (ctx, ~role)
        if edge is not None:
            out._requires_grad, out._edge = True, edge
        return out

    def saved_arrays(ctx) -> Any:
        return ctx.saved

    def check_saved(ctx) -> None:
        """Raise RuntimeError if a saved array was written in place since."""
        for value in ctx.saved_arrays():
            if hasattr(value, "base") and modified_since(value, ctx.sequence_nr):
                raise RuntimeError(
                    f"one of the variables needed for gradient computation has been modified by "
                    f"an inplace operation: [{value.dtype} {list(value.shape)}], saved by "
                    f"{ctx.name()}, was written after that. It is at version {version_of(value)}."
                )

    # For people who look at the graph.

    def name(ctx) -> str:
        """PyTorch's name of the node: MulBackward0."""
        return f"{type(ctx).__name__}Backward0"

    @property
    def next_functions(ctx) -> tuple:
        """((node, output number), ...) for each input; leaves appear as AccumulateGrad."""
        return tuple(
            (None, 0) if edge is None else (as_node(edge[0]), edge[1]) for edge in ctx.edges
        )

    def __repr__(ctx) -> str:
        return f"<{ctx.name()} object at {id(ctx):#x}>"


class AccumulateGrad:
    """How a leaf appears among next_functions: `variable` is the leaf."""

    next_functions = ()

    def __init__(self, variable: Tensor):
        self.variable = variable

    def name(self) -> str:
        return "tinytorch::autograd::AccumulateGrad"

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


def as_node(end: Any) -> Any:
    """The node at the end of an edge; a leaf is shown as AccumulateGrad."""
    return AccumulateGrad(end) if isinstance(end, Tensor) else end


def on_one_device(args: tuple) -> list:
    """Bring 0-d CPU tensors to the device of the others.

    Raises:
        RuntimeError: the tensors are on different devices otherwise.
    """
    tensors = [x for x in args if isinstance(x, Tensor)]
    others = {x.device for x in tensors if x.device is not cpu or x.array.ndim}
    if len(others) > 1:
        found = ", ".join(sorted(map(str, others)))
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, "
            f"{found}!"
        )
    target = others.pop() if others else cpu
    return [x.to(target) if isinstance(x, Tensor) and x.device is not target else x for x in args]


class Expand(Function):
    """y = x repeated to `shape`, without a copy (stride 0). Backward sums what was repeated."""

    view = True

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape, new = x.shape, len(shape) - x.ndim
        each = zip(x.strides, x.shape, shape[new:], strict=False)
        steps = [step if n == m else 0 if n == 1 else None for step, n, m in each]
        if new < 0 or None in steps:
            raise RuntimeError(
                f"The expanded sizes {list(shape)} must match the existing sizes {list(x.shape)}"
            )
        if x.__class__ is not np.ndarray:
            return ctx.xp.broadcast_to(x, shape)
        # Not np.broadcast_to: its result is read-only, and it takes more than twice as long.
        strides = (0,) * new + tuple(steps)
        if x.flags.c_contiguous:
            return np.ndarray(shape, x.dtype, x, 0, strides)
        return np.lib.stride_tricks.as_strided(x, shape, strides)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SumTo, g, ctx.shape)


class SumTo(Function):
    """y = x summed over the dimensions along which `shape` would be broadcast to x's shape."""

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape = x.shape
        return sum_to(x, shape)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Expand, g, ctx.shape)


def as_integer(number: Any) -> int:
    """An integer argument as Python's int: NumPy's integers, and tensors of one, count too.

    Raises:
        TypeError: it is of another type, such as float, bool or an array.
    """
    if isinstance(number, (bool, np.ndarray)):  # which operator.index would take
        raise not_an_integer(number)
    try:
        return operator.index(number)
    except TypeError:
        raise not_an_integer(number) from None


def as_shape(sizes: tuple) -> tuple[int, ...]:
    """(2, 3) from `f(2, 3)` and from `f((2, 3))`, as PyTorch takes sizes either way.

    Raises:
        TypeError: there are none, as in `f()`; `f(())` has the shape (). Or one is not an integer.
    """
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    elif not sizes:
        raise TypeError(f"{sys._getframe(1).f_code.co_name}() is missing its sizes")
    return tuple([n if type(n) is int else as_integer(n) for n in sizes])


@tensor_method("expand")
def expand(input: Tensor, *sizes: Any) -> Tensor:
    """A view in which dimensions of size 1 are repeated to `sizes`; -1 keeps a size.

    Raises:
        RuntimeError: a size other than 1 would have to change, or there are too few sizes.
    """
    sizes, shape = as_shape(sizes), input.array.shape
    new = len(sizes) - len(shape)
    if new < 0:
        raise RuntimeError(
            f"expand({list(shape)}, size={list(sizes)}): the number of sizes provided "
            f"({len(sizes)}) must be greater or equal to the number of dimensions in the tensor "
            f"({len(shape)})"
        )
    target = list(sizes)
    for i, size in enumerate(sizes):
        old = shape[i - new] if i >= new else None
        if size == -1 and old is not None:
            target[i] = old
        elif size < 0 or (old not in (None, 1, size)):
            raise RuntimeError(
                f"The expanded size of the tensor ({size}) must match the existing size ({old}) "
                f"at non-singleton dimension {i}.  Target sizes: {list(sizes)}.  Tensor sizes: "
                f"{list(shape)}"
            )
    return Expand.apply(input, tuple(target))


@tensor_method("expand_as")
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """A view of `input` in the shape of `other`."""
    return expand(input, other.array.shape)


@tensor_method("broadcast_to")
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """A view of `input` broadcast to the shape `size`."""
    return expand(input, size)


class MemoryFormat:
    """The order of a tensor's elements in memory: tinytorch.preserve_format or contiguous_format.

    PyTorch has formats for images besides, channels_last, which tinytorch does not.
    """

    def __init__(self, name: str, order: str):
        self.name, self.order = name, order  # the order by NumPy's name

    def __repr__(self) -> str:
        return f"tinytorch.{self.name}"


preserve_format = MemoryFormat("preserve_format", "K")


contiguous_format = MemoryFormat("contiguous_format", "C")


class Clone(Function):
    """y = a copy of x with memory of its own;  dy/dx = 1. Order K keeps transposed ones so."""

    def forward(ctx, x: Any, order: str = "K") -> Any:
        return x.copy("C" if 0 in x.strides else order)  # 0 in an expanded one, not in its copy

    def backward(ctx, g: Any) -> Any:
        return g


class Cast(Function):
    """y = x as another element type. The gradient goes back as the type of x."""

    def forward(ctx, x: Any, dtype: Any, order: str = "K") -> Any:
        ctx.dtype = x.dtype
        return x.astype(dtype, "C" if 0 in x.strides else order)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Cast, g, ctx.dtype)

    def name(ctx) -> str:
        return "ToCopyBackward0"


class Transfer(Function):
    """y = x on another device. The gradient travels back to the device of x.

    With non_blocking the backend may start a copy to the device and not wait for its end.
    """

    def forward(ctx, x: Any, device: Device, non_blocking: bool = False) -> Any:
        ctx.source = ctx.device
        ctx.device, ctx.xp = device, device.xp
        host = ctx.source.backend.to_numpy(x)
        if non_blocking:
            return device.backend.send(host, device.index)
        return device.backend.from_numpy(host, device.index)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Transfer, g, ctx.source)

    def name(ctx) -> str:
        return "ToCopyBackward0"


def cast(input: Tensor, dtype: DType, memory_format: MemoryFormat = preserve_format) -> Tensor:
    """`input` as `dtype`; the tensor itself where it is of that type. Integers get no gradient."""
    if input.dtype is dtype:
        return input
    if not dtype.is_floating_point:
        input = input.detach()
    if memory_format is preserve_format:
        return Cast.apply(input, numpy_dtype(dtype))
    return Cast.apply(input, numpy_dtype(dtype), memory_format.order)


@tensor_method("to")
def to(
    self: Tensor,
    *args: Any,
    device: Any = None,
    dtype: DType | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: MemoryFormat = preserve_format,
) -> Tensor:
    """The tensor with another dtype or on another device: `x.to(float64)`, `x.to("cuda:0")`,
    `x.to(device, dtype)`, `x.to(other)` for both as `other` has them.

    Returns the tensor itself where nothing changes, unless copy=True. A copy lies in memory as
    `memory_format` says.

    Raises:
        TypeError: an argument is not a dtype, device, tensor or flag.
    """
    for arg in reversed(args):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, (DType, type)):  # or a Python type: float is float64
            dtype = arg
        elif isinstance(arg, (str, int, Device)) and not isinstance(arg, bool):
            device = arg
        elif isinstance(arg, bool):
            non_blocking, copy = arg, copy or non_blocking
        elif arg is not None:
            raise TypeError(f"to() received an invalid argument of type {type(arg).__name__}")
    out = self
    if dtype is not None:
        out = cast(out, as_dtype(dtype), memory_format)
    if device is not None and as_device(device) is not out.device:
        out = Transfer.apply(out, as_device(device), non_blocking)
    return Clone.apply(out, memory_format.order) if copy and out is self else out


@tensor_method("clone")
def clone(input: Tensor, *, memory_format: MemoryFormat = preserve_format) -> Tensor:
    """A copy with memory of its own; the gradient flows through."""
    return Clone.apply(input, memory_format.order)


@tensor_method("cpu")
def cpu_copy(self: Tensor) -> Tensor:
    return to(self, device="cpu")


@tensor_method("cuda")
def cuda_copy(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    return to(self, device="cuda" if device is None else device, non_blocking=non_blocking)


@tensor_method("__array_wrap__")
def array_wrap(self: Tensor, array: Any, context: Any = None, scalar: bool = False) -> Tensor:
    """Makes a Tensor of the result of a NumPy function: np.sin(tensor)."""
    return from_numpy(np.asarray(array))


class Add(Function):
    """c = a + b;   dc/da = 1,   dc/db = 1."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        return a + b

    def backward(ctx, g: Any) -> Any:
        return g, g


class Sub(Function):
    """c = a - b;   dc/da = 1,   dc/db = -1."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        return a - b

    def backward(ctx, g: Any) -> Any:
        return g, None if ctx.edges[1] is None else -g


class Mul(Function):
    """c = a * b;   dc/da = b,   dc/db = a."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        edge_a, edge_b = ctx.edges  # None where no gradient is needed: then its factor is not kept
        ctx.saved = (None if edge_b is None else a, None if edge_a is None else b)
        return a * b

    def backward(ctx, g: Any) -> Any:
        a, b = ctx.saved
        return None if b is None else g * b, None if a is None else g * a


class Div(Function):
    """c = a / b;   dc/da = 1 / b,   dc/db = -a / b^2 = -c / b."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        ctx.saved = (None if ctx.edges[1] is None else a, b)
        return a / b

    def backward(ctx, g: Any) -> Any:
        a, b = ctx.saved
        ga = g / b
        return ga, None if a is None else -ga * (a / b)


class Neg(Function):
    """y = -x;   dy/dx = -1."""

    def forward(ctx, x: Any) -> Any:
        return -x

    def backward(ctx, g: Any) -> Any:
        return -g


def number_like(number: Any, dtype: DType) -> Any:
    """The number as one that does not widen an array of this type, as Python's do a bfloat16."""
    return numpy_dtype(dtype).type(number) if dtype is bfloat16 else number


def operands(a: Any, b: Any, floating: bool = False) -> tuple[Any, Any]:
    """Bring two tensors, or a tensor and a number, to the type of their result.

    A number stays a number. With `floating`, integers become the default float type. A NumPy array
    counts as a tensor.
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = as_tensor(a), as_tensor(b)
    a, b = (x.item() if isinstance(x, np.generic) else x for x in (a, b))  # Python's numbers
    a = a if isinstance(a, Tensor) or isinstance(b, Tensor) else as_tensor(a)  # add(2, 3)
    dtype = result_type(a, b)
    if floating and not dtype.is_floating_point:
        dtype = Defaults.dtype
    return (
        cast(a, dtype) if isinstance(a, Tensor) else number_like(a, dtype),
        cast(b, dtype) if isinstance(b, Tensor) else number_like(b, dtype),
    )


@tensor_method("__add__", "__radd__")
def add(input: Tensor, other: Any) -> Tensor:
    """input + other, broadcast; the type of the result is `result_type(input, other)`."""
    return Add.apply(*operands(input, other))


@tensor_method("__sub__")
def sub(input: Tensor, other: Any) -> Tensor:
    """input - other, broadcast."""
    return Sub.apply(*operands(input, other))


@tensor_method("__mul__", "__rmul__")
def mul(input: Tensor, other: Any) -> Tensor:
    """input * other, broadcast."""
    return Mul.apply(*operands(input, other))


@tensor_method("__truediv__")
def true_divide(input: Tensor, other: Any) -> Tensor:
    """input / other, broadcast, in floating point also for integers."""
    return Div.apply(*operands(input, other, floating=True))


@tensor_method("__neg__")
def neg(x):
    return Neg.apply(x)


class Exp(Function):
    """y = e^x;   dy/dx = y."""

    def forward(ctx, x: Any) -> Any:
        y = ctx.xp.exp(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        return g * ctx.saved[0]


@tensor_method("exp")
def exp(input: Tensor) -> Tensor:
    return Exp.apply(input)


class Sum(Function):
    """y = x_1 + ... + x_n;   dy/dx_i = 1: the gradient is repeated."""

    def forward(ctx, x: Any) -> Any:
        ctx.shape = x.shape
        return sum_to(x, ())

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Expand, g, ctx.shape)


@tensor_method("sum")
def sum(input: Tensor) -> Tensor:
    """The sum of all elements; integers and booleans are added up as int64."""
    return Sum.apply(input if input.dtype.is_floating_point else cast(input, int64))


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


def call_hooks(node: Function, grad: Any) -> Any:
    """Show the gradients of a node's outputs to the hooks on them, which may replace them."""
    grads = grad if node.several else [grad]
    for number, hooks in node.hooks.items():
        if grads[number] is not None:
            grads[number] = run_hooks(hooks, grads[number], node.device)
    return grads if node.several else grads[0]


def run_hooks(hooks: list, grad: Any, device: Any) -> Any:
    """Call each hook with the gradient as a Tensor; what a hook returns replaces it."""
    as_array = not isinstance(grad, Tensor)
    tensor = wrap(device.xp.asarray(grad), device) if as_array else grad
    for hook in hooks:
        answer = hook(tensor)
        tensor = tensor if answer is None else answer
    return tensor.array if as_array else tensor


class Freed:
    """Sentinel for saved values freed by backward; any access raises RuntimeError."""

    def __getitem__(self, number: Any) -> Any:
        raise RuntimeError(
            "Trying to backward through the graph a second time: the first pass has freed what was "
            "saved for it. Specify retain_graph=True in the first call of backward() or grad()."
        )


FREED = Freed()


def edge_of(tensor: Tensor) -> tuple | None:
    """Where a gradient of `tensor` goes: (node or leaf, output number), or None."""
    return (tensor._edge or (tensor, 0)) if tensor.requires_grad else None


def backward_pass(
    edges: Sequence,
    grads: Sequence,
    keep_graph: bool,
    as_tensors: bool,
    targets: set | None = None,
) -> dict:
    """Carry the gradients `grads` of `edges` to the leaves.

    The heap yields the newest node that has a gradient. All calls that used its result are newer
    still, so by then every part of its gradient has arrived.

    Gradients are plain arrays on their way, or Tensors (`as_tensors`) if they are to be
    differentiated or if a mode wants to see each operation.

    Returns {leaf: gradient}, or, with `targets`, {edge of a target: gradient}.
    """
    arrived: dict = {}  # node or leaf -> its gradient (of a node with several outputs: a list)
    own: set = set()  # those whose gradient is a sum made here: only these are added to in place
    found: dict = {}
    heap: list = []
    while True:
        for edge, grad in zip(edges, grads, strict=False):
            if edge is None or grad is None:
                continue
            node, number = edge
            if node.several:
                add_part(arrived, heap, node, number, grad)
            elif node not in arrived:
                arrived[node] = grad
                if node.sequence_nr is not None:  # a leaf has none
                    heappush(heap, (node.sequence_nr, node))
            elif node in own:
                arrived[node] += grad
            else:
                # Not in place: Add, for one, hands the same array to both of its inputs.
                arrived[node] = arrived[node] + grad
                if not as_tensors:
                    own.add(node)
        if not heap:
            break
        sequence_nr, node = heappop(heap)
        grad = arrived.pop(node)
        if node.hooks is not None:
            grad = call_hooks(node, grad)
        if targets is not None:
            for number, part in enumerate(grad if node.several else (grad,)):
                if (node, number) in targets:
                    found[node, number] = part
        if last_write[0] < sequence_nr:
            node.check_saved()
        grads = general_step(node, grad, as_tensors)
        edges = node.edges
        if not keep_graph and node.saved is not NOTHING:
            node.saved = FREED
    if targets is None:
        return arrived
    return {**{(leaf, 0): grad for leaf, grad in arrived.items()}, **found}


def add_part(arrived: dict, heap: list, node: Function, number: int, grad: Any) -> None:
    """Add to the gradient of output `number` of a node with several outputs."""
    if node not in arrived:
        arrived[node] = [None] * len(node.outputs)
        heappush(heap, (node.sequence_nr, node))
    earlier = arrived[node][number]
    arrived[node][number] = grad if earlier is None else earlier + grad


def general_step(node: Function, grad: Any, as_tensors: bool) -> tuple:
    """The gradients of a node's inputs, from the gradient of its output, or of its outputs."""
    grads = list(grad) if node.several else [grad]
    xp, device = node.device.xp, node.device
    if node.several and node.materialize_grads:
        for number, like in enumerate(node.outputs):
            if grads[number] is None and like is not None:
                zeros = xp.zeros(*like)
                grads[number] = wrap(zeros, device) if as_tensors else zeros
    if node.takes_tensors and not as_tensors:
        grads = [None if g is None else wrap(xp.asarray(g), device) for g in grads]
    on_tensors = as_tensors or node.takes_tensors
    results = node.gradients(grads) if on_tensors else node.backward(*grads)
    if not isinstance(results, tuple):
        results = (results,)
    if node.input_shapes is not None:
        results = node.sum_back(results)
    if node.takes_tensors and not as_tensors:
        results = [None if result is None else result.array for result in results]
    return tuple(results)


def accumulate(leaf: Tensor, grad: Any) -> None:
    """Add an arrived gradient to leaf.grad, which always owns its array."""
    if leaf._hooks:
        grad = run_hooks(leaf._hooks, grad, leaf.device)
    if isinstance(grad, Tensor):
        leaf._grad = grad.clone() if leaf._grad is None else leaf._grad + grad
    elif leaf._grad is None:
        leaf._grad = wrap(leaf.device.xp.array(grad), leaf.device)
    else:
        bump_version(leaf._grad.array)  # a graph may have saved it
        leaf._grad.array += grad


def starting_gradients(outputs: Sequence[Tensor], grads: Sequence[Any]) -> list[Tensor]:
    """The given gradients, or ones for scalars."""
    checked = []
    for number, (output, grad) in enumerate(zip(outputs, grads, strict=True)):
        if not output.requires_grad:
            raise RuntimeError(
                f"element {number} of tensors does not require grad and does not have a grad_fn"
            )
        if grad is None:
            if output.array.size != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            ones = output.device.xp.ones(output.array.shape, output.array.dtype)
            grad = wrap(ones, output.device)
        checked.append(grad)
    return checked


def as_sequence(value: Any) -> tuple:
    return () if value is None else (value,) if isinstance(value, Tensor) else tuple(value)


def run_backward(
    tensors: Any,
    grad_tensors: Any,
    retain_graph: bool | None,
    create_graph: bool,
    inputs: Any,
) -> dict:
    """backward_pass, from arguments as people write them, with recording set to create_graph."""
    roots = as_sequence(tensors)
    given = as_sequence(grad_tensors) or (None,) * len(roots)
    targets = None if inputs is None else {edge_of(target) for target in inputs}
    keep = create_graph if retain_graph is None else retain_graph
    as_tensors = create_graph or bool(state.modes)
    before = state.grad_enabled
    state.grad_enabled = create_graph
    try:
        grads = starting_gradients(roots, given)
        grads = grads if as_tensors else [grad.array for grad in grads]
        return backward_pass([edge_of(x) for x in roots], grads, keep, as_tensors, targets)
    finally:
        state.grad_enabled = before


@tensor_method("backward")
def tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Add to the grad of each leaf behind this tensor the derivative with respect to it.

    gradient is that of some number with respect to this tensor; a single element may leave it out,
    which means 1. With create_graph the gradients are recorded, and can be differentiated.
    retain_graph keeps what the graph has saved for another backward.
    """
    arrived = run_backward(self, gradient, retain_graph, create_graph, None)
    for leaf, grad in arrived.items():
        accumulate(leaf, grad)


if __name__ == "__main__":

    def message(call: Callable) -> str:
        try:
            return str(call())
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    x = tensor([1.0, 2.0, 3.0])
    print(message(lambda: expand.__wrapped__(3, 2)))  # the function without its check
    # -> AttributeError: 'int' object has no attribute 'array'
    print(message(lambda: expand(3, 2)))
    # -> TypeError: expand(): argument 'input' (position 1) must be Tensor, not int
    print(message(lambda: x.expand_as([2, 3])))
    # -> TypeError: expand_as(): argument 'other' (position 2) must be Tensor, not list
    print(message(lambda: broadcast_to(None, (2, 3))))
    # -> TypeError: broadcast_to(): argument 'input' (position 1) must be Tensor, not NoneType

    # What fails for another reason is passed on, and a call that Python refuses, too.
    print(message(lambda: expand(x, 4)))
    # -> RuntimeError: The expanded size of the tensor (4) must match the existing size (3) ...
    print(message(lambda: expand_as(x)))
    # -> TypeError: expand_as() missing 1 required positional argument: 'other'

    @checked
    def scaled(input: Tensor, factor: float) -> Tensor:
        return wrap(input.array * float(factor), input.device)

    print(scaled(x, 2))  # -> tensor([2.0, 4.0, 6.0])
    print(message(lambda: scaled(x, 1j)))
    # -> TypeError: scaled(): argument 'factor' (position 2) must be float, not complex

    @checked
    def rows(input: Tensor, start: int, count: int | None = None, *others: Tensor) -> Tensor:
        parts = [tensor.array[start:][:count] for tensor in (input, *others)]
        return wrap(np.concatenate(parts), input.device)

    print(rows(x, 1, None, x))  # -> tensor([2.0, 3.0, 2.0, 3.0])
    print(message(lambda: rows(x, 1.5)))
    # -> TypeError: rows(): argument 'start' (position 2) must be int, not float
    print(message(lambda: rows(3, tensor(1))))
    # -> TypeError: rows(): argument 'input' (position 1) must be Tensor, not int
    print(message(lambda: rows(x, 0, None, x, "x")))
    # -> TypeError: rows(): argument 'others' (position 4) must be Tensor, not str

    # The operators and most methods are the functions themselves, without a call in between.
    print(Tensor.__add__ is add.__wrapped__, Tensor.expand is expand.__wrapped__)  # -> True True
    print(Tensor.expand_as is expand_as)  # -> True

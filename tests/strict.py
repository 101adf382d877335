"""The device `strict`: an array type that computes as NumPy does and behaves as CuPy does.

It is a class and a module of its own. It mixes with nothing: a NumPy array beside one of its arrays
is a TypeError, in an operator, in a function, in an index, and NumPy's functions refuse its arrays.
Results with no dimensions stay arrays. So code that forgets `ctx.xp`, reaches for NumPy or relies
on NumPy's scalars fails here, on a machine without a GPU.
"""

import types
from typing import Any

import numpy as np

from tinytorch.core.device import Backend, numpy_address, register_backend

# NumPy's functions that CuPy 14.2 does not have (found by comparing the two namespaces).
MISSING = frozenset(
    """asmatrix block bmat busday_count busday_offset datetime_as_string datetime_data einsum_path
    frompyfunc fromregex geomspace get_include getbufsize geterr geterrcall histogram_bin_edges info
    insert is_busday isnat matvec nanpercentile nanquantile nested_iters polyder polydiv polyint
    setbufsize seterr seterrcall show_runtime spacing test unstack vecdot vecmat""".split()
)
MISSING_LINALG = frozenset(
    "diagonal matrix_norm multi_dot outer svdvals tensordot test trace vecdot vector_norm".split()
)
METHODS = """all any argmax argmin argpartition argsort astype choose clip compress conj cumprod
cumsum diagonal dot max mean min nonzero prod ravel repeat reshape round searchsorted squeeze std
sum swapaxes take trace transpose var view flatten""".split()
OPERATORS = """add sub mul truediv floordiv mod pow matmul and or xor lshift rshift""".split()
COMPARISONS = "eq ne lt le gt ge".split()


def refuse(value: Any) -> None:
    raise TypeError(f"Unsupported type {type(value)}: a strict array mixes with no other array")


def unwrap(value: Any) -> Any:
    """The NumPy arrays behind strict ones, also in tuples and lists. TypeError for NumPy's own."""
    if isinstance(value, StrictArray):
        return value._array
    if isinstance(value, np.ndarray):
        refuse(value)
    if isinstance(value, (tuple, list)):
        return type(value)(unwrap(item) for item in value)
    return value


def root(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def strict_arrays(values: Any) -> list["StrictArray"]:
    found = []
    for value in values:
        if isinstance(value, StrictArray):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(strict_arrays(value))
    return found


def wrap(result: Any, sources: list["StrictArray"]) -> Any:
    """A result of NumPy as strict arrays; a view of one of `sources` knows its base."""
    if isinstance(result, (tuple, list)):
        parts = [wrap(item, sources) for item in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    if isinstance(result, np.generic):
        result = np.asarray(result)
    if not isinstance(result, np.ndarray):
        return result
    base = None
    for source in sources:
        if result is source._array:
            return source
        if result.base is not None and root(result) is root(source._array):
            base = source if source.base is None else source.base
    return StrictArray(result, base)


def strict_call(function: Any, args: tuple, kwargs: dict) -> Any:
    result = function(*unwrap(args), **{name: unwrap(value) for name, value in kwargs.items()})
    return wrap(result, strict_arrays((*args, *kwargs.values())))


class StrictArray:
    """An array of the device `strict`: `base`, `shape`, `dtype` and methods as CuPy's ndarray."""

    def __init__(self, array: np.ndarray, base: "StrictArray | None" = None):
        self._array = array
        self.base = base

    # NumPy must neither take it for an operand of its own nor turn it into an array.
    __array_ufunc__ = None
    __array_priority__ = 100
    __hash__ = None

    def __array_function__(self, func, types, args, kwargs):
        raise TypeError(f"numpy.{func.__name__} on a strict array: use the array's own module")

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    shape = property(lambda self: self._array.shape)
    dtype = property(lambda self: self._array.dtype)
    strides = property(lambda self: self._array.strides)
    ndim = property(lambda self: self._array.ndim)
    size = property(lambda self: self._array.size)
    itemsize = property(lambda self: self._array.itemsize)
    nbytes = property(lambda self: self._array.nbytes)
    flags = property(lambda self: self._array.flags)
    T = property(lambda self: wrap(self._array.T, [self]))
    mT = property(lambda self: wrap(self._array.mT, [self]))
    real = property(lambda self: self)

    def copy(self, order: str = "C") -> "StrictArray":
        return StrictArray(self._array.copy(order))

    def fill(self, value: Any) -> None:
        self._array.fill(unwrap(value))

    def item(self, *args: Any) -> Any:
        return self._array.item(*args)

    def tolist(self) -> Any:
        return self._array.tolist()

    def get(self) -> np.ndarray:
        """A copy in NumPy, explicitly: CuPy's name for it."""
        return self._array.copy()

    def __getitem__(self, key: Any) -> "StrictArray":
        plain = unwrap(key)
        result = self._array[plain]
        if isinstance(result, np.generic):  # CuPy shows the element's memory
            plain = plain if isinstance(plain, tuple) else (plain,)
            if not any(part is Ellipsis for part in plain):
                result = self._array[(*plain, ...)]
        return wrap(result, [self])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array[unwrap(key)] = unwrap(value)

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self):
        return (self[i] for i in range(len(self._array)))

    def __bool__(self) -> bool:
        return bool(self._array)

    def __int__(self) -> int:
        return int(self._array)

    def __index__(self) -> int:
        return self._array.__index__()

    def __float__(self) -> float:
        return float(self._array)

    def __neg__(self) -> "StrictArray":
        return wrap(-self._array, [])

    def __pos__(self) -> "StrictArray":
        return wrap(+self._array, [])

    def __abs__(self) -> "StrictArray":
        return wrap(abs(self._array), [])

    def __invert__(self) -> "StrictArray":
        return wrap(~self._array, [])

    def __repr__(self) -> str:
        return f"strict.{self._array!r}"


def method(name: str):
    def call(self, *args, **kwargs):
        plain = {key: unwrap(value) for key, value in kwargs.items()}
        result = getattr(self._array, name)(*unwrap(args), **plain)
        return wrap(result, [self, *strict_arrays((*args, *kwargs.values()))])

    return call


def operator(name: str):
    def call(self, other):
        if not isinstance(other, (StrictArray, int, float, np.generic)):
            if isinstance(other, np.ndarray):
                refuse(other)
            return NotImplemented
        result = getattr(self._array, name)(unwrap(other))
        return NotImplemented if result is NotImplemented else wrap(result, [])

    return call


def in_place(ufunc: np.ufunc):
    def call(self, other):
        ufunc(self._array, unwrap(other), out=self._array)
        return self

    return call


IN_PLACE = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}
for _name in METHODS:
    setattr(StrictArray, _name, method(_name))
for _name in [*OPERATORS, *COMPARISONS, *(f"r{name}" for name in OPERATORS)]:
    setattr(StrictArray, f"__{_name}__", operator(f"__{_name}__"))
for _name, _ufunc in IN_PLACE.items():
    setattr(StrictArray, f"__i{_name}__", in_place(_ufunc))


class StrictUfunc:
    """A ufunc with the methods that CuPy's have."""

    def __init__(self, ufunc: np.ufunc):
        self.ufunc = ufunc
        self.__name__ = ufunc.__name__

    def __call__(self, *args, **kwargs):
        return strict_call(self.ufunc, args, kwargs)

    def at(self, array, indices, *values):
        unwrap_all = unwrap((array, indices, *values))
        self.ufunc.at(*unwrap_all)

    def reduce(self, *args, **kwargs):
        return strict_call(self.ufunc.reduce, args, kwargs)

    def accumulate(self, *args, **kwargs):
        return strict_call(self.ufunc.accumulate, args, kwargs)

    def outer(self, *args, **kwargs):
        return strict_call(self.ufunc.outer, args, kwargs)


class StrictModule(types.ModuleType):
    """A module of NumPy's functions, as far as CuPy has them, on strict arrays."""

    def __init__(self, name: str, module: Any, missing: frozenset):
        super().__init__(name)
        self._module, self._missing = module, missing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in self._missing or not hasattr(self._module, name):
            raise AttributeError(f"CuPy has no function '{name}'")
        value = getattr(self._module, name)
        if isinstance(value, types.ModuleType):
            missing = MISSING_LINALG if name == "linalg" else frozenset()
            value = StrictModule(f"{self.__name__}.{name}", value, missing)
        elif value is np.ndarray:
            value = StrictArray
        elif isinstance(value, np.ufunc):
            value = StrictUfunc(value)
        elif callable(value) and not isinstance(value, type):
            function = value

            def value(*args, **kwargs):
                return strict_call(function, args, kwargs)

            value.__name__ = name
        setattr(self, name, value)
        return value


xp = StrictModule("strict", np, MISSING)


def broadcast_to(array: StrictArray, shape: tuple) -> StrictArray:
    view = wrap(np.broadcast_to(array._array, shape), [array])
    view._array.flags.writeable = True  # as CuPy's
    return view


xp.broadcast_to = broadcast_to


def strided_view(array: StrictArray, shape: tuple, strides: tuple) -> StrictArray:
    view = np.lib.stride_tricks.as_strided(array._array, shape, strides)
    return StrictArray(view, array if array.base is None else array.base)


def register() -> None:
    """Makes "strict" a device: `tinytorch.tensor([1.0], device="strict")`."""
    register_backend(
        "strict",
        Backend(
            xp,
            StrictArray,
            from_numpy=lambda array, index: StrictArray(np.array(array)),
            to_numpy=lambda array: array._array.copy(),
            # As for CuPy's arrays: NumPy's ways to ask for an address and to make a view fail.
            address=lambda array: numpy_address(array._array),
            strided=strided_view,
        ),
    )

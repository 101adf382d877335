"""Step 74b: Views, and who frees the memory

The memory of step 74a holds what malloc found there, and nothing reads it. tensor() takes nested
lists apart as in step 69a, and writes the numbers one after the other, as float32. tolist() takes
views of views, until a view of one number is left. Who frees the memory, then? A view is another
struct with the same numbers. If it frees them too, they are freed twice, and the process ends. If
the tensor frees them while a view still lives, the view reads memory that holds something else by
now.

So only the tensor that made the memory owns it: the field `owns` says so. And a view keeps its
owner alive, by a reference in Python:

    x     owns 1   data ---.
    ^                       >-->  1 2 3 4 5 6         freed with x, and x stays while y has it
    base                   |
    y     owns 0   data ---'

as_strided copies the struct (*view = *t) and writes other sizes and strides into it; data + offset
is where its first element lies. With that, all of topic 69 is at hand, and no number is moved.

The traps: y = x.transpose(0, 1) looks like six numbers, and keeps all of x (step 70a). And data is
a bare pointer: nothing asks whether c.data[6], or a view by as_strided, lies inside of the memory.
PyTorch's as_strided asks.

PyTorch counts instead: the memory is a struct of its own, StorageImpl, with the number of tensors
that refer to it, and the last one frees it. NumPy does as we do: array.base.

Changed: SOURCE, CTensor. New: tensor, as_strided, Tensor.tolist, Tensor.transpose.
Try: leave out `out.base = input`. What does the row read after x is gone?
"""

import ctypes
import pathlib
import subprocess
import tempfile
import weakref

SOURCE = """
#include <stdlib.h>

typedef struct {
    float *data;
    long ndim, shape[8], stride[8], owns;
} Tensor;

#define MOST (1L << 30)  /* MOST * MOST numbers of 4 bytes: their bytes still fit into a long */

long alive = 0;

void tensor_free(Tensor *t) {
    if (t->owns) {
        free(t->data);
        alive--;
    }
    free(t);
}

Tensor *tensor_new(long ndim, const long *shape) {
    if (ndim > 8) return NULL;
    Tensor *t = malloc(sizeof(Tensor));
    if (t == NULL) return NULL;
    long size = 1, fits = 1;
    t->ndim = ndim;
    t->owns = 1;
    for (long d = ndim - 1; d >= 0; d--) {
        t->shape[d] = shape[d];
        t->stride[d] = size;
        fits = fits && shape[d] >= 0 && shape[d] <= MOST && size <= MOST;
        size *= fits ? shape[d] : 0;
    }
    t->data = fits ? malloc(size * sizeof(float)) : NULL;
    if (t->data == NULL) {
        free(t);
        return NULL;
    }
    alive++;
    return t;
}

Tensor *as_strided(const Tensor *t, long ndim, const long *shape, const long *stride, long offset) {
    if (ndim > 8) return NULL;
    Tensor *view = malloc(sizeof(Tensor));
    if (view == NULL) return NULL;
    *view = *t;
    view->owns = 0;
    view->data += offset;
    view->ndim = ndim;
    for (long d = 0; d < ndim; d++) {
        view->shape[d] = shape[d];
        view->stride[d] = stride[d];
    }
    return view;
}
"""


class CTensor(ctypes.Structure):
    """The struct of the C source, field by field."""

    _fields_ = [
        ("data", ctypes.POINTER(ctypes.c_float)),
        ("ndim", ctypes.c_long),
        ("shape", ctypes.c_long * 8),
        ("stride", ctypes.c_long * 8),
        ("owns", ctypes.c_long),
    ]


def compile_c(source):
    """The functions of a C source, as a ctypes library."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "code.c").write_text(source)
        command = ["cc", "-O3", "-shared", "-fPIC", "code.c", "-o", "code.so"]
        subprocess.run(command, cwd=folder, check=True)
        return ctypes.CDLL(f"{folder}/code.so")  # it is loaded: the files may go


library = compile_c(SOURCE)
library.tensor_new.argtypes = [ctypes.c_long, ctypes.c_void_p]
library.tensor_new.restype = ctypes.POINTER(CTensor)
library.tensor_free.argtypes = [ctypes.c_void_p]
addresses = [ctypes.c_void_p] * 2
library.as_strided.argtypes = [ctypes.c_void_p, ctypes.c_long, *addresses, ctypes.c_long]
library.as_strided.restype = ctypes.POINTER(CTensor)


class Tensor:
    """The owner of a tensor in C. c is the struct."""

    @property
    def shape(self):
        return tuple(self.c.shape[: self.c.ndim])

    def stride(self):
        return tuple(self.c.stride[: self.c.ndim])

    def tolist(self):
        """The elements as nested lists."""
        if not self.shape:
            return self.c.data[0]
        places = [i * self.c.stride[0] for i in range(self.shape[0])]
        return [as_strided(self, self.shape[1:], self.stride()[1:], i).tolist() for i in places]

    def transpose(self, dim0, dim1):
        """A view with two dimensions exchanged."""
        shape, stride = list(self.shape), list(self.stride())
        for numbers in (shape, stride):
            numbers[dim0], numbers[dim1] = numbers[dim1], numbers[dim0]
        return as_strided(self, shape, stride, 0)


def owned(pointer):
    """A Tensor that frees the struct of C when it is not needed any more."""
    if not pointer:
        raise RuntimeError("C gave no tensor")
    out = Tensor()
    out.c = pointer.contents
    weakref.finalize(out, library.tensor_free, pointer)
    return out


def empty(*size):
    """A tensor with whatever is in its memory."""
    return owned(library.tensor_new(len(size), (ctypes.c_long * len(size))(*size)))


def tensor(data):
    """A new tensor with the numbers of nested lists, all of one length at each depth."""
    shape, level = [], [data]
    while level and isinstance(level[0], list):
        shape.append(len(level[0]))
        level = [item for row in level for item in row]
    out = empty(*shape)
    for i, number in enumerate(level):
        out.c.data[i] = number
    return out


def as_strided(input, size, stride, storage_offset):
    """A view: another tensor on the memory of input, which is kept alive."""
    longs, c = ctypes.c_long * len(size), ctypes.byref(input.c)
    out = owned(library.as_strided(c, len(size), longs(*size), longs(*stride), storage_offset))
    out.base = input
    return out


if __name__ == "__main__":
    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    y = x.transpose(0, 1)
    print(y.tolist(), y.stride())  # -> [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]] (1, 3)
    print("float32:", tensor([0.1, 16777217.0]).tolist())
    # -> float32: [0.10000000149011612, 16777216.0]

    row = as_strided(x, (3,), (1,), 3)
    x = y = None
    others = [tensor([float(i)] * 6) for i in range(20)]  # they take what memory is free
    print("the row is still there:", row.tolist())
    # -> the row is still there: [4.0, 5.0, 6.0]
    alive = ctypes.c_long.in_dll(library, "alive")  # here: C
    print("alive:", alive.value, "with", len(others), "others")  # here: C
    # -> alive: 21 with 20 others
    row = None
    print("alive:", alive.value)  # here: C
    # -> alive: 20

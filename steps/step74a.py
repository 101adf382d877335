"""Step 74a: A struct in C, and its owner

In step 73 the arrays were NumPy's, and C only looped over them. PyTorch's tensors are in C++
altogether: a struct with a pointer to the numbers, a shape and strides. Python holds a small object
that owns it. So this file begins again, with a struct, a function that makes one and one that frees
it:

    Tensor  -- c -->   data    -- malloc -->  . . . . . .
    in Python          ndim    2
                       shape   2 3
                       stride  3 1            in C

In C, t is the address of a struct and t->ndim its field. malloc gives memory, or NULL where there
is none, and every call is checked. So is the product of the sizes, since a long has 64 bits: 2^40
rows of 2^40 numbers would be a size of 0. What malloc gave, free must take back once. Never, and
the program grows; twice, and it crashes. Python knows when nothing refers to an object any more:
weakref.finalize(out, free, pointer) calls free(pointer) then, or when the program ends.

ctypes.Structure reads the struct from Python. Its fields must be those of C, in order and type. If
they are not, Python reads other bytes, and nothing complains.

The trap: the list of sizes that Python passes is freed after the call. A struct that keeps its
address reads freed memory later, and two tensors made from one list share their shape. So the sizes
are copied into the struct, which has room for 8.

PyTorch: TensorImpl, and THPVariable, which owns it.

New: all of it.
Try: leave out weakref.finalize. How many are alive at the end?
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
    long ndim, shape[8], stride[8];
} Tensor;

#define MOST (1L << 30)  /* MOST * MOST numbers of 4 bytes: their bytes still fit into a long */

long alive = 0;

void tensor_free(Tensor *t) {
    free(t->data);
    free(t);
    alive--;
}

Tensor *tensor_new(long ndim, const long *shape) {
    if (ndim > 8) return NULL;
    Tensor *t = malloc(sizeof(Tensor));
    if (t == NULL) return NULL;
    long size = 1, fits = 1;
    t->ndim = ndim;
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
"""


class CTensor(ctypes.Structure):
    """The struct of the C source, field by field."""

    _fields_ = [
        ("data", ctypes.POINTER(ctypes.c_float)),
        ("ndim", ctypes.c_long),
        ("shape", ctypes.c_long * 8),
        ("stride", ctypes.c_long * 8),
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


class Tensor:
    """The owner of a tensor in C. c is the struct."""

    @property
    def shape(self):
        return tuple(self.c.shape[: self.c.ndim])

    def stride(self):
        return tuple(self.c.stride[: self.c.ndim])


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


if __name__ == "__main__":
    x = empty(2, 3)
    print(tuple(x.shape), x.stride())  # -> (2, 3) (3, 1)
    alive = ctypes.c_long.in_dll(library, "alive")  # here: a count in C
    sizes = [empty(1000, n) for n in range(50)]
    print("alive:", alive.value, "of", len(sizes) + 1)  # here: the same
    # -> alive: 51 of 51
    sizes = None
    print("alive:", alive.value)  # here: the same
    # -> alive: 1
    for size in ((1,) * 9, (1 << 30, 1 << 30), (1 << 40, 1 << 40)):  # too many, too much, too long
        try:
            empty(*size)  # here: PyTorch has no limit of 8
        except RuntimeError as error:
            print(error)
            # -> C gave no tensor
            # -> C gave no tensor
            # -> C gave no tensor

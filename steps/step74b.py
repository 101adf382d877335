"""Step 74b: Numbers in and out

The memory of step 74a holds what malloc found there. tensor() takes nested lists apart as in step
69a, and writes the numbers one after the other; tolist() reads them, place by place.

    place of x[i, j]  =  i * stride[0] + j * stride[1]

Each number is converted on the way. Python's floats have 64 bits, and those in this memory 32: 0.1
comes back as 0.10000000149011612, the float32 next to it.

The trap: `c.data` is a bare pointer. c.data[6] of six numbers is no IndexError, but what happens to
lie behind them, or a crash. tolist stays inside since it asks shape; a program that goes past
tolist is on its own. PyTorch's data_ptr() is such a pointer.

PyTorch also converts number by number here. So torch.from_numpy, which copies nothing, is much
faster than torch.tensor of a list.

New: tensor, nested, Tensor.tolist.
Try: print x.c.data[6], and then x.c.data[10**9]. (The second one ends Python.)
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
    long size = 1;
    t->ndim = ndim;
    for (long d = ndim - 1; d >= 0; d--) {
        t->shape[d] = shape[d];
        t->stride[d] = size;
        size *= shape[d];
    }
    t->data = malloc(size * sizeof(float));
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

    def tolist(self):
        """The elements as nested lists."""
        return nested(self.c, 0, 0)


def nested(c, dim, place):
    """The elements from a place in memory on, along dimension dim and those behind it."""
    if dim == c.ndim:
        return c.data[place]
    places = [place + i * c.stride[dim] for i in range(c.shape[dim])]
    return [nested(c, dim + 1, each) for each in places]


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
    """A new tensor with the numbers of nested lists."""
    shape, level = [], [data]
    while isinstance(level[0], list):
        shape.append(len(level[0]))
        level = [item for row in level for item in row]
    out = empty(*shape)
    for i, number in enumerate(level):
        out.c.data[i] = number
    return out


if __name__ == "__main__":
    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    print(x.tolist(), x.stride())  # -> [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]] (3, 1)
    print("float32:", tensor(0.1).tolist(), tensor([16777217.0]).tolist())
    # -> float32: 0.10000000149011612 [16777216.0]
    cube = tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    print(
        tuple(cube.shape), cube.stride(), cube.tolist()[1]
    )  # -> (2, 2, 1) (2, 1, 1) [[3.0], [4.0]]

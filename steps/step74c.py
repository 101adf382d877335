"""Step 74c: add, with strides and with errors

A function in C that adds two tensors has to answer four questions before it may loop:

    device   a number, CPU or CUDA        shape     the same in both
    memory   malloc may give NULL         strides   each operand has its own

It is easy to get one of them wrong. A device that is a text, compared by device == "cuda": in C
that compares two addresses, and the same word may stand at two of them. A loop over data[i] that
ignores strides: x + x.T is x + x. And exit(1) on an error, which ends Python and all of your work.

Here C writes what is wrong into `message` and gives NULL. (tensor_new and as_strided write theirs
first, in case they fail.) `owned` makes a RuntimeError of NULL. The loop is that of step 73.

The trap: names in C are global. Had the text been called `error`, the linker would have taken the
function of that name in the C library for it, and snprintf would have written into code: a crash.
PyTorch's names stand in a namespace, and its errors are C++ exceptions, turned into Python's.

Changed: SOURCE, CTensor, owned. New: add in C, Tensor.__add__.
Try: leave out the question for the shapes. What is the sum of 3 and 6 numbers, and of 6 and 3?
"""

import ctypes
import pathlib
import subprocess
import tempfile
import weakref

SOURCE = """
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    float *data;
    long ndim, shape[8], stride[8], owns, device;
} Tensor;

#define MOST (1L << 30)  /* MOST * MOST numbers of 4 bytes: their bytes still fit into a long */

enum { CPU, CUDA };  /* names for 0 and 1 */

char message[100];
long alive = 0;

void tensor_free(Tensor *t) {
    if (t->owns) {
        free(t->data);
        alive--;
    }
    free(t);
}

Tensor *tensor_new(long ndim, const long *shape) {
    snprintf(message, 100, "no memory, or more than 8 dimensions");
    if (ndim > 8) return NULL;
    Tensor *t = malloc(sizeof(Tensor));
    if (t == NULL) return NULL;
    long size = 1, fits = 1;
    t->ndim = ndim;
    t->owns = 1;
    t->device = CPU;
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
    snprintf(message, 100, "no memory, or more than 8 dimensions");
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

Tensor *add(const Tensor *a, const Tensor *b) {
    if (a->device != CPU || b->device != CPU) {
        snprintf(message, 100, "both tensors must be on the cpu");
        return NULL;
    }
    int same = a->ndim == b->ndim;
    for (long d = 0; same && d < a->ndim; d++) same = a->shape[d] == b->shape[d];
    if (!same) {
        snprintf(message, 100, "the shapes of a and b must match");
        return NULL;
    }
    Tensor *out = tensor_new(a->ndim, a->shape);
    if (out == NULL) return NULL;
    long size = 1;
    for (long d = 0; d < a->ndim; d++) size *= a->shape[d];
    for (long i = 0; i < size; i++) {
        long rest = i, place_a = 0, place_b = 0;
        for (long d = a->ndim - 1; d >= 0; d--) {
            place_a += rest % a->shape[d] * a->stride[d];
            place_b += rest % a->shape[d] * b->stride[d];
            rest /= a->shape[d];
        }
        out->data[i] = a->data[place_a] + b->data[place_b];
    }
    return out;
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
        ("device", ctypes.c_long),
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
library.add.argtypes = addresses
library.add.restype = ctypes.POINTER(CTensor)


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

    def __add__(self, other):
        return owned(library.add(ctypes.byref(self.c), ctypes.byref(other.c)))


def owned(pointer):
    """A Tensor that frees the struct of C when it is not needed any more."""
    if not pointer:
        message = (ctypes.c_char * 100).in_dll(library, "message")
        raise RuntimeError(message.value.decode())
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
    x = tensor([[1.0, 2.0], [3.0, 4.0]])
    print((x + x).tolist(), (x + x.transpose(0, 1)).tolist())
    # -> [[2.0, 4.0], [6.0, 8.0]] [[2.0, 5.0], [5.0, 8.0]]
    three, six = tensor([1.0] * 3), tensor([1.0] * 6)
    for a, b in ((three, six), (six, three)):
        try:
            print((a + b).tolist())
        except RuntimeError:
            print("refused")
            # -> refused
            # -> refused
    x.c.device = 1  # here: PyTorch needs a GPU for that
    try:
        print((x + x).tolist())  # here: the same
    except RuntimeError as error:
        print(error)  # -> both tensors must be on the cpu

"""Step 74d: A family in C, and a picture

sub, mul and <= differ from add in one character, and would be 25 lines each. In Python a table made
the classes (step 72a). In C a macro does: the compiler puts its text in for each OPERATION, so a
line is an operation. (The backslashes join the macro's lines.)

What they share are two functions. `output` compares the shapes from the last dimension on. `place`
is the formula of the strides, and adds nothing for a size of 1: such sizes, and missing dimensions,
are broadcast, as if their stride were 0 (step 69e).

The picture is made of these four. For each point c of a plane, z begins at c, and z * z + c is
computed 27 times; where z stays small, c is in the Mandelbrot set. A row of 50 real parts and a
column of 13 imaginary parts broadcast to all points, and C does the rest. PyTorch prints the same.

The trap: a macro is text. SQUARE(x) defined as x * x makes a + b * a + b of SQUARE(a + b).

What you have: a tensor in C, with views, errors and a family. PyTorch's has gradients, all types of
elements, loops for all cores, and GPUs.

Changed: SOURCE. New: operator; OPERATION, output and place in C.
Try: add a fifth line, OPERATION(truediv, x / y), and its name to the last loop. What is
tensor(1.0) / tensor(0.0)?
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

Tensor *output(const Tensor *a, const Tensor *b) {
    if (a->device != CPU || b->device != CPU) {
        snprintf(message, 100, "both tensors must be on the cpu");
        return NULL;
    }
    long shape[8], ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (long d = 0; d < ndim; d++) {  /* d counts from the last dimension */
        long m = d < a->ndim ? a->shape[a->ndim - 1 - d] : 1;
        long n = d < b->ndim ? b->shape[b->ndim - 1 - d] : 1;
        if (m != n && m != 1 && n != 1) {
            snprintf(message, 100, "the shapes of a and b must match");
            return NULL;
        }
        shape[ndim - 1 - d] = m == 1 ? n : m;
    }
    return tensor_new(ndim, shape);
}

long place(const Tensor *t, const Tensor *out, long i) {
    long found = 0;
    for (long d = 1; d <= t->ndim; d++) {
        long index = i % out->shape[out->ndim - d];
        i /= out->shape[out->ndim - d];
        if (t->shape[t->ndim - d] > 1) found += index * t->stride[t->ndim - d];
    }
    return found;
}

#define OPERATION(name, formula)                                     \
    Tensor *name(const Tensor *a, const Tensor *b) {                  \
        Tensor *out = output(a, b);                                   \
        if (out == NULL) return NULL;                                 \
        long size = 1;                                                \
        for (long d = 0; d < out->ndim; d++) size *= out->shape[d];   \
        for (long i = 0; i < size; i++) {                             \
            float x = a->data[place(a, out, i)];                      \
            float y = b->data[place(b, out, i)];                      \
            out->data[i] = formula;                                   \
        }                                                             \
        return out;                                                   \
    }

OPERATION(add, x + y)
OPERATION(sub, x - y)
OPERATION(mul, x * y)
OPERATION(le, x <= y)
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


def operator(name):
    """Attach the operation of C of this name to Tensor."""
    function = getattr(library, name)
    function.argtypes, function.restype = addresses, ctypes.POINTER(CTensor)

    def method(self, other):
        return owned(function(ctypes.byref(self.c), ctypes.byref(other.c)))

    setattr(Tensor, f"__{name}__", method)


for each in ("add", "sub", "mul", "le"):
    operator(each)


if __name__ == "__main__":
    # z -> z * z + c, for each c of the plane at once: where does z stay small?
    re_c = tensor([[-2.0 + 2.6 * i / 49 for i in range(50)]])  # [1, 50]
    im_c = tensor([[-1.1 + 2.2 * i / 12] for i in range(13)])  # [13, 1]
    re, im, four = re_c, im_c, tensor(4.0)
    steps = re_c * tensor(0.0) + im_c * tensor(0.0)
    for _ in range(27):
        re, im = re * re - im * im + re_c, re * im + re * im + im_c
        steps = steps + (re * re + im * im <= four)
    for row in steps.tolist():
        print("".join(" .:-=+*#%@"[int(n) // 3] for n in row))
        # ->                                  .*...
        # ->                               ....:-=:...
        # ->                          ......::=@@@@-:......
        # ->                  .........:#@@@@@@@@@@@@@@*@@:..
        # ->            ...%:.:-:..::-*@@@@@@@@@@@@@@@@@@@@*.
        # ->        .....::=+@@@@@@@=@@@@@@@@@@@@@@@@@@@@@*:.
        # -> @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@=:...
        # ->        .....::=+@@@@@@@=@@@@@@@@@@@@@@@@@@@@@*:.
        # ->            ...%:.:-:..::-*@@@@@@@@@@@@@@@@@@@@*.
        # ->                  .........:#@@@@@@@@@@@@@@*@@:..
        # ->                          ......::=@@@@-:......
        # ->                               ....:-=:...
        # ->                                  .*...

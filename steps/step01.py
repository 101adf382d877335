"""Step 01: A variable is a box

We want to write a formula in Python and get its derivative. A NumPy array alone cannot do that: it
holds numbers, and it has no place for a derivative or for the computation that made the numbers.

So we put the array into a box, an object of a class of our own. Later steps write more on the box.
In this step it holds its array and nothing else:

    x = Variable(np.array(1.0))        x.data is the array

The box and its contents are separate. `x.data = other` puts another array into the same box, and
every name that refers to the box sees the change.

The array may have any number of dimensions: none for a single number, one for a row, two for a
matrix. NumPy calls this number `ndim`, so the box needs nothing of its own for it.

Two traps. The box holds the array itself, not a copy: a change of the array from outside is a
change of the box's contents. And the box is not an array: x + 1 does not work before stage 3.

(PyTorch's box is `torch.Tensor`. Until 2018 it was called `Variable` there too, and x.data still
works.)

All steps are built alike. The framework stands above the line `if __name__ == "__main__":`; the
next step takes it over and changes it. A demo of what is new stands below. The comment `# -> 1.0`
says what a line prints, and `python -m steps run 1` checks that it does.

New: Variable.
Try: `y = Variable(x)`, then print y.data: a box inside a box. From step 09 on this is an error.
"""

import numpy as np


class Variable:
    """A box around a NumPy array."""

    def __init__(self, data):
        self.data = data


if __name__ == "__main__":
    data = np.array(1.0)
    x = same_box = Variable(data)
    print(x.data)  # -> 1.0
    x.data = np.array(2.0)
    print("by the other name:", same_box.data)  # -> by the other name: 2.0
    print("the first array is as it was:", data)  # -> the first array is as it was: 1.0

    for numbers in (7.0, [1.0, 2.0, 3.0], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]):
        box = Variable(np.array(numbers))
        print(box.data.ndim, box.data.shape)
        # -> 0 ()
        # -> 1 (3,)
        # -> 2 (2, 3)

    row = np.array([1.0, 2.0, 3.0])
    box = Variable(row)
    row[0] = 100.0
    print("not a copy:", box.data)  # -> not a copy: [100.   2.   3.]

    try:
        x + 1
    except TypeError as error:
        print(error)  # -> unsupported operand type(s) for +: 'Variable' and 'int'

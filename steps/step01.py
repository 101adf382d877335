"""Step 01: A variable is a box

We want to write a formula in Python, and to be told its derivative. A NumPy array cannot help with
that. It holds numbers, and it has no place for anything else: not for a derivative, and not for the
way in which its numbers came about.

So the array goes into a box, and the box is ours. What belongs to the numbers can later be written
on it. Today the box holds its array and nothing more:

    x = Variable(np.array(1.0))        x.data is the array

The box and its contents are two things. `x.data = other` puts something else into the same box, and
everybody who holds the box sees it.

The array may have any number of dimensions: none for a single number, one for a row, two for a
matrix. NumPy calls the number of dimensions `ndim`, and we need nothing of our own for it.

Two traps. The box holds the array itself, not a copy: whoever changes the array from outside
changes what is in the box. And the box is no array: x + 1 does not work yet. We teach it that in
stage 3.

(PyTorch's box is `torch.Tensor`. It was called `Variable` there, too, until 2018, and x.data still
works.)

All steps are made alike. Above the line `if __name__ == "__main__":` stands the framework, which
the next step takes over and changes. Below it stands a demo of what is new. `# -> 1.0` says what a
line prints, and `python -m steps run 1` checks that it does.

New: Variable.
Try: `y = Variable(x)`, and look at y.data. A box inside a box: nobody stops you before step 09.
"""

import numpy as np


class Variable:
    """A box around a NumPy array."""

    def __init__(self, data):
        self.data = data


if __name__ == "__main__":
    data = np.array(1.0)
    x = Variable(data)
    print(x.data)  # -> 1.0

    same_box = x
    x.data = np.array(2.0)
    print(x.data)  # -> 2.0
    print("seen by everybody:", same_box.data)  # -> seen by everybody: 2.0
    print("the first array is as it was:", data)  # -> the first array is as it was: 1.0

    for numbers in (7.0, [1.0, 2.0, 3.0], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]):
        box = Variable(np.array(numbers))
        print(box.data.ndim, "dimensions, shape", box.data.shape)
        # -> 0 dimensions, shape ()
        # -> 1 dimensions, shape (3,)
        # -> 2 dimensions, shape (2, 3)

    row = np.array([1.0, 2.0, 3.0])
    box = Variable(row)
    row[0] = 100.0
    print("not a copy:", box.data)  # -> not a copy: [100.   2.   3.]

    try:
        x + 1
    except TypeError as error:
        print(error)  # -> unsupported operand type(s) for +: 'Variable' and 'int'

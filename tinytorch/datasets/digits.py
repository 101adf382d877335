"""Handwritten digits that are part of the package: 1,797 scans of 8 by 8 pixels.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
Repository, 1998, https://doi.org/10.24432/C50P49, licence CC BY 4.0. This is its test set: digits
of 13 people, each pixel the number (0 to 16) of inked points in a block of 4 by 4.
"""

import gzip
from pathlib import Path

import numpy as np

from tinytorch.core import tensor as neighbour
from tinytorch.core.tensor import Tensor, from_numpy

# The data lie beside the package's modules. Any of them tells where that is.
data_folder = Path(neighbour.__file__).parent.parent / "datasets"


def load_digits() -> tuple[Tensor, Tensor]:
    """All digits: images of shape [1797, 8, 8], float32 from 0 to 1, and labels [1797], int64."""
    with gzip.open(data_folder / "digits.csv.gz", "rt", encoding="ascii") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    images = (table[:, :64] / 16).astype(np.float32).reshape(-1, 8, 8)
    return from_numpy(images), from_numpy(table[:, 64].copy())

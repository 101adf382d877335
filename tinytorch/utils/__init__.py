"""What a training needs beside the network."""

from tinytorch.utils import checkpoint, data, einops

"""Real data to learn from."""

from tinytorch.datasets import transforms
from tinytorch.datasets.cifar import CIFAR10
from tinytorch.datasets.digits import load_digits
from tinytorch.datasets.labelled import Digits, Spiral
from tinytorch.datasets.mnist import MNIST, FashionMNIST

"""Libraries that PyTorch computes with, for programs that ask for them or set their switches."""

from tinytorch.backends import cuda, cudnn, mps

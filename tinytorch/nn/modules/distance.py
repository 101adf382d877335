"""PyTorch's place of two modules that measure how near vectors are."""

from tinytorch.nn.modules.loss import CosineSimilarity, PairwiseDistance

__all__ = ["CosineSimilarity", "PairwiseDistance"]

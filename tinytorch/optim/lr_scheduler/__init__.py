"""Schedulers: how the learning rate changes while the training goes on."""

from tinytorch.optim.lr_scheduler.base import (
    ExponentialLR,
    LambdaLR,
    LRScheduler,
    MultiStepLR,
    StepLR,
    _LRScheduler,
)
from tinytorch.optim.lr_scheduler.cycle import OneCycleLR, ReduceLROnPlateau
from tinytorch.optim.lr_scheduler.restarts import (
    ConstantLR,
    CosineAnnealingWarmRestarts,
    PolynomialLR,
)
from tinytorch.optim.lr_scheduler.warmup import (
    CosineAnnealingLR,
    LinearLR,
    SequentialLR,
)

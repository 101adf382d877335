"""Optimizers change parameters by means of their gradients."""

from tinytorch.optim import lr_scheduler
from tinytorch.optim.adam import Adam, AdamW
from tinytorch.optim.adamax import Adamax
from tinytorch.optim.lbfgs import LBFGS
from tinytorch.optim.optimizer import Optimizer
from tinytorch.optim.rmsprop import Adadelta, Adagrad, RMSprop
from tinytorch.optim.sgd import SGD

"""Probability distributions to draw from, with derivatives, as torch.distributions has them."""

from tinytorch.distributions.bernoulli import Bernoulli
from tinytorch.distributions.categorical import Categorical
from tinytorch.distributions.distribution import Distribution
from tinytorch.distributions.independent import Independent
from tinytorch.distributions.kl import kl_divergence, register_kl
from tinytorch.distributions.multivariate_normal import MultivariateNormal
from tinytorch.distributions.normal import Normal
from tinytorch.distributions.uniform import Uniform

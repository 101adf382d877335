"""Special functions under the names that torch.special has for them."""

from tinytorch.ops.composite import logit
from tinytorch.ops.elementwise import exp2, expm1, log1p, round
from tinytorch.ops.elementwise import sigmoid as expit
from tinytorch.ops.erf import erf
from tinytorch.ops.softmax import log_softmax, logsumexp, softmax

__all__ = [
    "erf", "exp2", "expit", "expm1", "log1p", "log_softmax", "logit", "logsumexp", "round",
    "softmax",
]  # fmt: skip

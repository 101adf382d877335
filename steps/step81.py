"""Step 81: How far off is an answer?

A loss is one number for how wrong a network is, and training goes down its slope. So it is the
slope that counts. That of a square grows with the error: an answer that is off by 10 pulls ten
times as hard as one that is off by 1. If the 10 is a typo in the data, it pulls the whole fit.

    mse_loss        d^2      slope 2 d         fits the mean, so outliers pull it
    l1_loss         |d|      slope 1 or -1     fits the median, but has a kink at 0
    smooth_l1_loss  both: a square near 0, a line beyond; huber_loss is the same, scaled

mse_loss warns if the shapes differ: [n, 1] minus [n] broadcasts to [n, n], a loss that goes down
and teaches nothing, without any error.

For a question with yes or no, the answer is a probability p, and the loss is -log of the
probability given to the truth: 0 if the network is sure and right, large if it is sure and wrong.
binary_cross_entropy takes p itself, binary_cross_entropy_with_logits the number before the sigmoid.
Use the latter: sigmoid(100) is 1 in float32, and log(1 - 1) is minus infinity. It is replaced by
-100, and there is no gradient left. The version with logits still knows how wrong it is.

If the answer is a vector, a loss can compare distances: the triplet loss wants an anchor closer to
a vector of its own kind than to one of another kind, by a margin.

Whatever the loss, one strange batch can give a huge gradient, and a single step then throws the
network so far that it never comes back. clip_grad_norm_ treats all gradients as one vector. If it
is longer than max_norm, it is shortened, and keeps its direction. clip_grad_value_ cuts off each
element, and so changes the direction.

Each loss has a `reduction` ("mean", "sum", "none"), and a module made as in step 80. PyTorch's
names for it before 2018, `size_average` and `reduce`, still come first in its signatures. They are
absent here, so give the options by name.

New: reduce; the losses for numbers, yes or no, and vectors, and their modules; clipping. Moved: the
activations, to tinytorch/nn/activation.py.
Try: in the demo's run use smooth_l1_loss as the loss. Does the run still need clipping?
"""

import importlib
import warnings
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.activation import FunctionModule, softplus
from tinytorch.ops.broadcast import broadcast_tensors
from tinytorch.ops.joining import stack
from tinytorch.ops.norm import norm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "elementwise gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def reduce(losses: Tensor, reduction: str, weight: Tensor | None = None) -> Tensor:
    """The mean or the sum of all losses, or all of them ("none"), each times its weight if it has
    one. ValueError for other words."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    losses = losses if weight is None else losses * weight
    return losses if reduction == "none" else getattr(losses, reduction)()


def difference(input: Tensor, target: Tensor, integers: bool = False) -> Tensor:
    """input - target. A warning where their shapes differ: broadcasting is seldom what is meant.

    NotImplementedError for integers, unless they are allowed.
    """
    d, a, b = input - target, tuple(target.array.shape), tuple(input.array.shape)
    if a != b:
        text = f"Using a target size {a} that is different to the input size {b}"
        warnings.warn(text + ": check that the broadcasting is meant.", stacklevel=3)
    if not integers and not d.is_floating_point():
        raise NotImplementedError(f"this loss is not implemented for {d.dtype!r}")
    return d


def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """(input - target)^2. NotImplementedError for integers."""
    d = difference(input, target)
    return reduce(d * d, reduction)


def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """|input - target|."""
    return reduce(difference(input, target, integers=True).abs(), reduction)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """d^2 / 2 for d = |input - target| below delta; beyond, the line of slope delta that goes on
    (Huber, 1964). RuntimeError unless delta is positive."""
    if delta <= 0:
        raise RuntimeError(f"huber_loss does not support non-positive values for delta: {delta}")
    d = difference(input, target).abs()
    near = d.clamp(max=delta)
    return reduce(near * (d - 0.5 * near), reduction)


def smooth_l1_loss(
    input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """huber_loss / beta: its slope is 1 beyond beta (Girshick, 2015). With beta 0 it is l1_loss.

    RuntimeError for a negative beta.
    """
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta: {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return huber_loss(input, target, reduction, beta) / beta


def check_target(input: Tensor, target: Tensor, one_type: bool) -> None:
    """ValueError where two shapes differ, RuntimeError where the types do not fit."""
    if target.shape != input.shape:
        raise ValueError(f"Target size {target.shape} must be that of the input, {input.shape}")
    if not target.is_floating_point() or (one_type and target.dtype is not input.dtype):
        raise RuntimeError(f"Found dtype {target.dtype!r} but expected {input.dtype!r}")


class BinaryCrossEntropy(Function):
    """l = -t log(x) - (1 - t) log(1 - x);   dl/dx = (x - t) / (x (1 - x)).

    Logarithms below -100 count as -100, so that a wrong 0 or 1 costs much, and not inf.
    """

    elementwise = True

    def forward(ctx, x: Any, t: Any) -> Any:
        ctx.save_for_backward(x, t)
        log, log1m = ctx.xp.log(x), ctx.xp.log1p(-x)
        return (t - 1) * ctx.xp.clip(log1m, -100, None) - t * ctx.xp.clip(log, -100, None)

    def backward(ctx, g: Any) -> Any:
        x, t = ctx.saved
        gx = g * (x - t) / ctx.xp.clip(x * (1 - x), 1e-12, None)
        return gx, None if ctx.edges[1] is None else g * (ctx.xp.log1p(-x) - ctx.xp.log(x))


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """-log of the probability that `input` gives to what `target` says: 1 (yes) or 0 (no).

    ValueError where the shapes differ, RuntimeError for other types or no probability.
    """
    check_target(input, target, one_type=True)
    if input.numel() and not 0 <= float(input.array.min()) <= float(input.array.max()) <= 1:
        raise RuntimeError("all elements of input should be between 0 and 1")
    return reduce(BinaryCrossEntropy.apply(input, target), reduction, weight)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy(sigmoid(input), target), without the sigmoid that could become 0 or 1.

    `pos_weight` counts each yes that often. ValueError where the shapes differ.
    """
    check_target(input, target, one_type=False)
    yes = softplus(-input, threshold=float("inf"))  # -logsigmoid(input)
    yes = yes if pos_weight is None else yes * (1 + (pos_weight - 1) * target)
    return reduce((1 - target) * input + yes, reduction, weight)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """input divided by its p-norm over `dim`: vectors of length 1 (by eps, if larger)."""
    return input / norm(input, p, dim, keepdim=True).clamp(min=eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors: 1 for one direction, 0 for a right angle."""
    x1, x2 = broadcast_tensors(x1, x2)
    return (normalize(x1, 2.0, dim, eps) * normalize(x2, 2.0, dim, eps)).sum(dim)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last dimension. (eps: at 0 the norm has no slope.)"""
    return norm(x1 - x2 + eps, p, -1, keepdim)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor:
    """How far the anchor is from being nearer to `positive` than to `negative` by a margin (Schroff
    et al., 2015). With swap the distance from positive to negative counts, if it is smaller.

    ValueError unless the margin is positive.
    """
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    near, far = (pairwise_distance(anchor, other, p, eps) for other in (positive, negative))
    if swap:
        far = far.minimum(pairwise_distance(positive, negative, p, eps))
    return reduce((near - far + margin).clamp(min=0), reduction)


class Comparison(FunctionModule):
    """A module that compares two inputs, such as an answer and the truth."""

    _inputs = 2

    def extra_repr(self) -> str:
        return ""


class MSELoss(Comparison, function=mse_loss):
    """mse_loss as a module."""


class L1Loss(Comparison, function=l1_loss):
    """l1_loss as a module."""


class HuberLoss(Comparison, function=huber_loss):
    """huber_loss as a module."""


class SmoothL1Loss(Comparison, function=smooth_l1_loss):
    """smooth_l1_loss as a module."""


class BCELoss(Comparison, function=binary_cross_entropy):
    """binary_cross_entropy as a module; `weight` is a buffer."""


class BCEWithLogitsLoss(Comparison, function=binary_cross_entropy_with_logits):
    """binary_cross_entropy_with_logits as a module; its tensors are buffers."""


class TripletMarginLoss(Comparison, function=triplet_margin_loss):
    """triplet_margin_loss as a module."""

    _inputs = 3


class CosineSimilarity(Comparison, function=cosine_similarity):
    """cosine_similarity as a module."""


def gradients_of(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """The gradients of a tensor, or of those of several tensors that have one."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [param.grad for param in parameters if param.grad is not None]


@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """How long all tensors are, taken as one vector.

    RuntimeError where that is nan or inf, if error_if_nonfinite asks for it. (foreach says how
    PyTorch loops. Here and below it makes no difference.)
    """
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)  # "inf" is a number, too
    if not tensors:
        return tensor(0.0)
    total = norm(stack([norm(t, norm_type).to(tensors[0].device) for t in tensors]), norm_type)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(f"the total norm of order {norm_type} is non-finite: {total.item()}")
    return total


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Shortens the gradient of all parameters, taken as one vector, to max_norm, and returns how
    long it was. The direction stays: only the length of the step changes.

    RuntimeError as get_total_norm.
    """
    grads = gradients_of(parameters)
    total = get_total_norm(grads, norm_type, error_if_nonfinite)
    # Multiplied even by 1: to ask on a GPU whether it is 1 would cost more.
    factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor.to(device=grad.device, dtype=grad.dtype))
    return total


@no_grad()
def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Cuts each element of the gradients to [-clip_value, clip_value]: the direction changes."""
    for grad in gradients_of(parameters):
        grad.clamp_(-float(clip_value), float(clip_value))


if __name__ == "__main__":
    from tinytorch.nn.activation import Tanh
    from tinytorch.nn.container import Sequential
    from tinytorch.nn.linear import Linear
    from tinytorch.ops.creation import linspace, zeros
    from tinytorch.ops.random import manual_seed

    importlib.import_module("tinytorch.core.printing")

    # Losses for numbers, and their slopes.
    for loss in (mse_loss, l1_loss, smooth_l1_loss):
        error = tensor([0.1, 1.0, 10.0], requires_grad=True)
        loss(error, zeros(3), reduction="sum").backward()
        values = loss(error, zeros(3), reduction="none").tolist()
        print(f"{loss.__name__:14}", [round(v, 3) for v in values], error.grad)
    # -> mse_loss       [0.01, 1.0, 100.0] tensor([ 0.2000,  2.0000, 20.0000])
    # -> l1_loss        [0.1, 1.0, 10.0] tensor([1., 1., 1.])
    # -> smooth_l1_loss [0.005, 0.5, 9.5] tensor([0.1000, 1.0000, 1.0000])

    # The best constant for five numbers, one of which is a typo: 30 for 3.
    data = tensor([1.0, 2.0, 3.0, 4.0, 30.0])
    for loss in (mse_loss, l1_loss, huber_loss):
        best = tensor(0.0, requires_grad=True)
        for _ in range(2000):
            loss(best.expand(5), data).backward()
            with no_grad():
                best -= 0.01 * best.grad
            best.grad = None
        print(f"{loss.__name__}: {best.item():.1f}")
    # -> mse_loss: 8.0
    # -> l1_loss: 3.0
    # -> huber_loss: 3.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mse_loss(zeros(3, 1), zeros(3))
    print(str(caught[0].message).partition(":")[0])
    # -> Using a target size (3,) that is different to the input size (3, 1)

    # Yes or no, and a network that is sure and wrong.
    logit, no = tensor([200.0], requires_grad=True), tensor([0.0])
    loss = binary_cross_entropy_with_logits(logit, no)
    loss.backward()
    print("with logits:", loss.item(), "gradient", logit.grad.item())
    # -> with logits: 200.0 gradient 1.0
    logit.grad = None
    loss = binary_cross_entropy(logit.sigmoid(), no)
    loss.backward()
    print("after a sigmoid:", loss.item(), "gradient", logit.grad.item())
    # -> after a sigmoid: 100.0 gradient 0.0
    unsure, yes = tensor([0.0]), tensor([1.0])
    once = binary_cross_entropy_with_logits(unsure, yes)
    three = binary_cross_entropy_with_logits(unsure, yes, pos_weight=tensor([3.0]))
    print(f"3 * {once.item():.4f} = {three.item():.4f}")  # -> 3 * 0.6931 = 2.0794
    loss = BCEWithLogitsLoss(pos_weight=tensor([3.0]), reduction="sum")
    print(loss, list(loss.state_dict()), loss(unsure, yes).item() == three.item())
    # -> BCEWithLogitsLoss() ['pos_weight'] True

    # Vectors: two that are alike, and one that is different.
    anchor, like, other = tensor([[1.0, 0.0]]), tensor([[1.0, 0.1]]), tensor([[0.0, 1.0]])
    print(f"{cosine_similarity(anchor, like).item():.3f}", cosine_similarity(anchor, other).item())
    # -> 0.995 0.0
    print(f"{triplet_margin_loss(anchor, like, other).item():.3f}")  # -> 0.000
    print(f"{TripletMarginLoss(margin=2.0)(anchor, like, other).item():.3f}")  # -> 0.686

    # A run that falls off a cliff: the target has one wild value.
    def run(max_norm):
        manual_seed(0)
        net = Sequential(Linear(1, 50), Tanh(), Linear(50, 1))
        x = linspace(-1, 1, 20).reshape(-1, 1)
        for step in range(300):
            target = x * 3 + (1e6 if step == 100 else 0.0)  # one bad batch
            net.zero_grad()
            loss = mse_loss(net(x), target)
            loss.backward()
            if max_norm:
                clip_grad_norm_(net.parameters(), max_norm)
            with no_grad():
                for param in net.parameters():
                    param -= 0.05 * param.grad
        return mse_loss(net(x), x * 3).item()

    fallen, saved = run(None), run(1.0)
    print(f"one bad batch in 300: loss {fallen:.3g}, with clipping {saved:.3g}")  # -> ...
    print("the run is saved:", saved < 0.05 and not fallen < 100)  # -> the run is saved: True
    weights = [tensor([0.0]), tensor([0.0, 0.0])]
    weights[0].grad, weights[1].grad = tensor([3.0]), tensor([0.0, 4.0])
    print("length", clip_grad_norm_(weights, 1.0).item())  # -> length 5.0
    print([[round(value, 3) for value in w.grad.tolist()] for w in weights])
    # -> [[0.6], [0.0, 0.8]]
    clip_grad_value_(weights, 0.7)
    print([[round(value, 3) for value in w.grad.tolist()] for w in weights])
    # -> [[0.6], [0.0, 0.7]]

"""Step loss19: Older programs: size_average and reduce

Before 2018 a loss had two switches where it has `reduction` now, and many programs still use them:

    size_average=True (or left out)    "mean"
    size_average=False                 "sum"
    reduce=False                       "none", whatever size_average is

PyTorch still takes them, and warns. So do these: `older` makes of a loss one that takes both by
name, and translates them. A call without them is passed on as it is. One more layer for eleven
functions is cheap here, where it would be clumsy to repeat the two arguments in each of them. The
modules of losses have one constructor, that of LossModule; it is wrapped in the same way.

The trap: functools.wraps. Without it the new function has no name and no text, and a module that
takes its options from the signature of its function (step activation11) would find *args.

New: legacy_get_string, older, and the losses of nn.functional. They make nn/_reduction.py.
Try: give size_average=False and reduction="mean" together. Which of them counts, and in PyTorch?
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any

from tinytorch.nn.modules import loss


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """The reduction that is meant, with a warning. What is not given, None, counts as True."""
    whole = "sum" if size_average is False else "mean"
    reduction = "none" if reduce is False else whole
    if emit_warning:
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use "
            f"reduction='{reduction}' instead.",
            stacklevel=3,
        )
    return reduction


def older(call: Callable) -> Callable:
    """A loss, or the constructor of one, that also takes size_average and reduce, by name."""

    @functools.wraps(call)
    def with_reduction(*args: Any, size_average: Any = None, reduce: Any = None, **options: Any):
        if size_average is not None or reduce is not None:
            options["reduction"] = legacy_get_string(size_average, reduce)
        return call(*args, **options)

    return with_reduction


loss.LossModule.__init__ = older(loss.LossModule.__init__)


binary_cross_entropy = older(loss.binary_cross_entropy)


binary_cross_entropy_with_logits = older(loss.binary_cross_entropy_with_logits)


cosine_embedding_loss = older(loss.cosine_embedding_loss)


cross_entropy = older(loss.cross_entropy)


kl_div = older(loss.kl_div)


l1_loss = older(loss.l1_loss)


margin_ranking_loss = older(loss.margin_ranking_loss)


mse_loss = older(loss.mse_loss)


nll_loss = older(loss.nll_loss)


smooth_l1_loss = older(loss.smooth_l1_loss)


triplet_margin_loss = older(loss.triplet_margin_loss)


if __name__ == "__main__":
    import importlib

    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")

    def warned(call):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = call()
        return result, [str(warning.message)[60:] for warning in caught]

    x, y = tensor([1.0, 2.0]), tensor([1.0, 5.0])
    print(warned(lambda: mse_loss(x, y)))  # -> (tensor(4.5000), [])
    print(warned(lambda: mse_loss(x, y, size_average=False)))
    # -> (tensor(9.), ["reduction='sum' instead."])
    print(warned(lambda: l1_loss(x, y, reduce=False)))
    # -> (tensor([0., 3.]), ["reduction='none' instead."])
    criterion, text = warned(lambda: loss.MSELoss(size_average=False))
    print(criterion.reduction, text, criterion(x, y))
    # -> sum ["reduction='sum' instead."] tensor(9.)
    print(legacy_get_string(True, None, emit_warning=False), mse_loss.__name__)  # -> mean mse_loss

"""The losses as older programs call them: size_average and reduce in place of reduction."""

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

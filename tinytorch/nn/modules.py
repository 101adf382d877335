"""PyTorch's places of modules and their helpers, such as torch.nn.modules.batchnorm._BatchNorm."""

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

NAMES = (
    "activation batchnorm container conv dropout flatten fold instancenorm linear loss module "
    "normalization padding pixelshuffle pooling rnn sparse transformer upsampling utils"
)


def repeated(n: int) -> Callable[[Any], tuple]:
    """The function that makes n of one number, and a tuple of what has several."""
    return lambda x: tuple(x) if isinstance(x, Iterable) else (x,) * n


_single, _pair, _triple = map(repeated, (1, 2, 3))


def __getattr__(name: str) -> Any:
    """A place, or what tinytorch.nn or one of its modules has under this name."""
    if name in PLACES:
        return PLACES[name]
    package = __name__.rpartition(".")[0]
    for key, module in list(sys.modules.items()):
        if key.startswith(package) and name in vars(module) and not name.startswith("__"):
            return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def places(names: str) -> dict[str, ModuleType]:
    """Modules below this one, which Python finds when a program imports them. Each has the names of
    all of tinytorch.nn."""
    made = {name: ModuleType(f"{__name__}.{name}", __doc__) for name in names.split()}
    for name, module in made.items():
        module.__getattr__ = __getattr__
        sys.modules[f"{__name__}.{name}"] = module
    return made


PLACES = places(NAMES)

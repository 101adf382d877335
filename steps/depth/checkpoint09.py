"""Step checkpoint09: Which node made the first nan? detect_anomaly

After a backward pass all gradients are nan, in each of a hundred layers. One node made the first,
and every node after it passed it on:

    x.sqrt() at x = 0:  the slope is inf;  0 * inf is nan

A mode that surrounds each node (step engine09) can look at what the node returns, and stop at the
first nan. That names the node, SqrtBackward0, but there may be fifty of them. Only forward knows
where each one was called. So the mode also sees each operation being called, and notes Python's
stack for the node that it makes. When a nan comes, a warning shows the lines of the program, and
leaves out those of the package.

The notes are kept in a WeakKeyDictionary: they go when the graph goes.

The traps: an operation that was called before the mode was on has no note. And noting a stack takes
ten times as long as a small operation, so the mode is for finding an error, not for a whole
training.

PyTorch's words: autograd.detect_anomaly, as a context, and set_detect_anomaly(True).

New: AnomalyMode, is_anomaly_enabled, set_detect_anomaly, detect_anomaly.
Try: check_nan=False. What is still found?
"""

import importlib
import inspect
import traceback
import warnings
import weakref
from pathlib import Path
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.engine import NodeMode
from tinytorch.autograd.node import Function
from tinytorch.core.state import open_modes, state
from tinytorch.core.tensor import Tensor

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")

PACKAGE = Path(inspect.getfile(Tensor)).parents[1]  # whose own calls are not shown


class AnomalyMode(NodeMode):
    """Notes where each operation is called, and looks at what each node of a backward pass returns.

    Raises:
        RuntimeError: with check_nan, a node returns nan; a warning shows where its operation was
            called. It does so too where backward raises an error of its own.
    """

    def __init__(self, check_nan: bool = True):
        self.check_nan = check_nan
        self.calls: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # node -> its stack

    def call(self, function: type, args: tuple) -> Any:
        result = function.apply(*args)
        for part in result if isinstance(result, tuple) else (result,):
            if isinstance(part, Tensor) and part._edge is not None:
                self.calls[part._edge[0]] = traceback.extract_stack()[:-1]
        return result

    def call_node(self, step: Any, node: Function, grad: Any, as_tensors: bool) -> tuple:
        try:
            results = step(node, grad, as_tensors)
            for number, part in enumerate(results if self.check_nan else ()):
                array = getattr(part, "array", part)
                if array is not None and bool((array != array).any()):
                    raise RuntimeError(
                        f"Function '{node.name()}' returned nan values in its {number}th output."
                    )
        except Exception:
            stack = [f for f in self.calls.get(node, []) if PACKAGE not in Path(f.filename).parents]
            lines = "".join(traceback.format_list(stack))
            warnings.warn(
                f"Error detected in {node.name()}. Traceback of forward call that caused the "
                f"error:\n{lines or 'called before the detection was enabled'}",
                stacklevel=2,
            )
            raise
        return results


def is_anomaly_enabled() -> bool:
    """Whether backward passes of this thread are looked at."""
    return any(isinstance(mode, AnomalyMode) for mode in state.modes)


class set_detect_anomaly:
    """Turns the detection on or off, on this thread, at once; as a context, until its end."""

    def __init__(self, mode: bool, check_nan: bool = True):
        self.before = state.modes
        self.put([m for m in state.modes if not isinstance(m, AnomalyMode)])
        if mode:
            self.put([AnomalyMode(check_nan), *state.modes])

    def put(self, modes: list) -> None:
        """Makes these the modes of the thread."""
        for mode in state.modes:
            open_modes.remove(mode)
        state.modes = tuple(modes)
        open_modes.extend(modes)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: Any) -> None:
        self.put(list(self.before))


class detect_anomaly(set_detect_anomaly):
    """`with detect_anomaly():` turns the detection on, and warns that it costs time."""

    def __init__(self, check_nan: bool = True):
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )
        self.check_nan = check_nan

    def __enter__(self) -> None:
        super().__init__(True, self.check_nan)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    x = Tensor([0.0, 4.0]).requires_grad_()

    def distance(x: Tensor) -> Tensor:
        return x.sqrt() * Tensor([0.0, 1.0])

    distance(x).sum().backward()
    print(x.grad)  # -> tensor([   nan, 0.2500])

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with detect_anomaly():
            print(is_anomaly_enabled())  # -> True
            try:
                distance(x).sum().backward()
            except RuntimeError as error:
                print(error)
            # -> Function 'SqrtBackward0' returned nan values in its 0th output.
        before = distance(x).sum()
        set_detect_anomaly(True)
        try:
            before.backward()
        except RuntimeError:
            pass
        with set_detect_anomaly(False):
            distance(x).sum().backward()
        print(is_anomaly_enabled())  # -> True
        set_detect_anomaly(False)
    enabled, found, unknown = (str(each.message) for each in caught)
    print(enabled[:38])  # -> Anomaly Detection has been enabled. Th
    print(found.splitlines()[-1].strip())  # -> return x.sqrt() * Tensor([0.0, 1.0])
    print(unknown.splitlines()[-1])  # -> called before the detection was enabled

"""tinytorch.compile: a function or network that runs as generated code, and gives what it gave."""

import functools
from collections.abc import Callable
from typing import Any

from tinytorch.compiler.capture import Break
from tinytorch.compiler.compiled import Compiled, all_compiled
from tinytorch.compiler.step import compile_step
from tinytorch.compiler.tracer import tracing
from tinytorch.nn.modules.module import Module
from tinytorch.optim.optimizer import Optimizer

BACKENDS = ("inductor", "c", "cuda", "numpy", "eager")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class OptimizedModule(Module):
    """A network that is compiled. It shares its parameters and buffers with `_orig_mod`."""

    def __init__(self, module: Module, **options: Any):
        super().__init__()
        self._orig_mod = module
        self.__dict__.update(options=options, compiled=Compiled(module, **options))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules", {})
        if "_orig_mod" not in modules:  # a copy that is not filled yet
            raise AttributeError(name)
        return modules["_orig_mod"] if name == "_orig_mod" else getattr(self._orig_mod, name)

    def __getstate__(self) -> dict:
        return {name: value for name, value in vars(self).items() if name != "compiled"}

    def __setstate__(self, state: dict) -> None:
        """A copy is compiled by itself."""
        compiled = Compiled(state["_modules"]["_orig_mod"], **state["options"])
        self.__dict__.update(state, compiled=compiled)


def compile(
    model: Callable | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable = "inductor",
    mode: str | None = None,
    options: dict | None = None,
    disable: bool = False,
) -> Any:
    """A function or network that runs as generated code, and gives what it gave before.

    The first call traces it: it runs once on arrays that write down what is done to them. Later
    calls of the same kind run the code that was generated from that. Also a decorator:
    `@compile` or `@compile(fullgraph=True)`.

    Args:
        model: a function, a Module, or the `step` of an optimizer.
        fullgraph: raise Unsupported, with the line of the program, where it cannot be one graph;
            without it the function then runs as it is.
        dynamic: each size, and each Python number among the arguments, has a graph of its own: no
            graph is for all sizes. None or True: after two that differ only in sizes or numbers, a
            call with others runs in eager, and is compiled when it has come three times in the
            last 50 such calls. False: it is compiled at once. At most 8 graphs are made.
        backend: "inductor" (the best that there is: "c" on the CPU, "cuda" on a GPU), "c", "cuda",
            "numpy" (generated Python), "eager" (the graph, operation by operation); or a function
            (graph, example arrays) -> function from a list of arrays to a list of arrays.
        mode: all mean the same: what "max-autotune" generates, products of matrices on the CPU,
            is generated in any case. There are no CUDA graphs: CuPy raises an error when cuBLAS is
            called while a stream is being recorded, so that a graph could hold no product.
        options: {"max_autotune": False} leaves products of matrices to BLAS: the first call takes
            down to a quarter of the time, and the steps of a small network up to half as long
            again. Other options have no effect.
        disable: return the model as it is.
    Raises:
        RuntimeError: there is no such backend or mode.
        TypeError: the model is not callable.
    """
    if model is None:
        settings = dict(fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode)
        return functools.partial(compile, **settings, options=options, disable=disable)
    if not callable(model):
        raise TypeError(f"compile(): argument 'model' must be callable, not {type(model).__name__}")
    if not callable(backend) and backend not in BACKENDS:
        raise RuntimeError(f"Invalid backend: {backend!r}, known are {', '.join(BACKENDS)}")
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode!r}, should be one of: {', '.join(MODES)}")
    if disable:
        return model
    chosen = dict(backend=backend, fullgraph=fullgraph, dynamic=dynamic)
    chosen["autotune"] = (options or {}).get("max_autotune", True)
    if isinstance(model, Module):
        return OptimizedModule(model, **chosen)
    if isinstance(getattr(model, "__self__", None), Optimizer) and model.__name__ == "step":
        return compile_step(model)
    compiled = Compiled(model, **chosen)

    @functools.wraps(model)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    call.compiled = compiled
    return call


def disable(function: Callable | None = None, recursive: bool = True) -> Callable:
    """A function that is never part of a graph: what calls it runs in eager. Also a decorator."""
    if function is None:
        return disable

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            raise Break(f"{function.__name__} is disabled")
        return function(*args, **kwargs)

    return call


def is_compiling() -> bool:
    """Whether the program runs on tracers now."""
    return tracing.trace is not None


def reset() -> None:
    """Forgets all graphs, so that each function is traced anew."""
    for compiled in list(all_compiled):
        for known in (compiled.entries, compiled.breaks, compiled.kinds, compiled.seldom):
            known.clear()
        compiled.limits.clear()
        compiled.count, compiled.misses = 0, 0

"""How a hook is added to those of a module or an optimizer."""

from typing import Any

from tinytorch.autograd.hooks import Hooks, RemovableHandle


def add_hook(hooks: Hooks, hook: Any, prepend: bool) -> RemovableHandle:
    """Registers a hook after those that are there, or before them (prepend)."""
    others = list(hooks) if prepend else []
    handle = hooks.add(hook)
    for key in others:  # a dict has an order: what is taken out and put back comes last
        hooks[key] = hooks.pop(key)
    return handle

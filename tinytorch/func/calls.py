"""torch.func: a module called as a function of its parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module

ABSENT = object()  # marks a name that the module did not have before the call


def one_dict(dicts: Any) -> dict[str, Tensor]:
    """The dict, or several in one. Raises ValueError for a name that two of them have."""
    if isinstance(dicts, dict):
        return dicts
    if not isinstance(dicts, Sequence) or not all(isinstance(each, dict) for each in dicts):
        raise ValueError(f"Expected a dict, or a list or tuple of dicts, but got {type(dicts)}")
    names = [name for each in dicts for name in each]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{twice} appeared in multiple dictionaries: which one is meant?")
    return {name: value for each in dicts for name, value in each.items()}


def tied(given: Mapping[str, Tensor], members: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is given for one name of a member, for its other names as well.

    Raises:
        ValueError: different tensors for names of one member.
    """
    values = dict(given)
    for name, value in given.items():
        for other, member in members.items():
            if member is members.get(name):
                if values.setdefault(other, value) is not value:
                    raise ValueError(f"{name} and {other} are tied, but got different tensors")
    return values


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """module(*args, **kwargs), with these tensors in the place of its parameters and buffers.

    A dict of names, or several; what they do not name stays. A buffer that the call replaces is
    replaced in the dict.

    Raises:
        ValueError: a name comes twice.
        TypeError: what takes a place is not a Tensor.
        RuntimeError: with `strict`, the names are not exactly those of the module.
    """
    given = one_dict(parameter_and_buffer_dicts)
    members = dict(module.named_parameters(remove_duplicate=False))
    members.update(module.named_buffers(remove_duplicate=False))
    values = tied(given, members) if tie_weights else given
    if strict and values.keys() != members.keys():
        wrong = sorted(values.keys() ^ members.keys())
        raise RuntimeError(f"missing or unexpected names for {type(module).__name__}: {wrong}")
    for value in values.values():
        if not isinstance(value, Tensor):
            raise TypeError(f"{value} is not an instance of tinytorch.Tensor")
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    before = []
    try:
        for name, value in values.items():
            path, _, key = name.rpartition(".")
            part = module.get_submodule(path)
            where = part._store_of(key)
            store = part.__dict__[where] if where else part.__dict__
            before.append((name, store, key, store.get(key, ABSENT)))
            store[key] = value
        return module(*args, **kwargs or {})
    finally:
        for name, store, key, old in before:
            if name in given:
                given[name] = store[key]
            store[key] = old
            if old is ABSENT:
                del store[key]

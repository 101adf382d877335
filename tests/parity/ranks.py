"""Ranks for the demos of stage 18 on PyTorch: real processes, which talk by its backend gloo."""

import io
import multiprocessing
import sys
import tempfile
import types
import warnings

import torch
import torch.distributed as dist


class Place:
    """Where this process stands, once simulate has made it a rank."""

    options: dict | None = None  # of init_process_group


def simulate(size, function, *args):
    """What function(*args) returns in each of `size` processes, like the simulate of tinytorch.

    Raises:
        RuntimeError: a rank has failed.
    """
    context, ends = multiprocessing.get_context("fork"), []
    with tempfile.NamedTemporaryFile() as file:
        for rank in range(size):
            ours, theirs = context.Pipe()
            options = {"rank": rank, "world_size": size, "path": f"{file.name}.store"}
            context.Process(target=run, args=(theirs, options, function, args)).start()
            theirs.close()
            ends.append(ours)
        results = [torch.load(io.BytesIO(end.recv_bytes()), weights_only=False) for end in ends]
    for result in results:
        if isinstance(result, Exception):
            raise RuntimeError(f"a rank has failed: {result!r}")
    return results


def run(end, options, function, args):
    """What the process of one rank does."""
    Place.options = options
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = function(*args)
    except Exception as error:
        result = RuntimeError(f"{type(error).__name__}: {error}")
    packed = io.BytesIO()
    torch.save(result, packed)
    end.send_bytes(packed.getvalue())
    if dist.is_initialized():
        dist.destroy_process_group()


def install():
    """Gives torch.distributed a module `simulator`, and its groups the ranks of simulate."""
    module = types.ModuleType("torch.distributed.simulator")
    module.simulate = simulate
    sys.modules[module.__name__] = module
    begin = dist.init_process_group

    def init_process_group(backend=None, **options):
        rank, size, path = Place.options.values()
        begin("gloo", store=dist.FileStore(path, size), rank=rank, world_size=size)

    dist.init_process_group = init_process_group

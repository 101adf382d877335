"""Memory that processes share, and functions that run in several of them."""

import os
import signal
import time

import pytest

import tinytorch
from tinytorch import multiprocessing as mp
from tinytorch import nn


def write(rank, module, tensor):
    with tinytorch.no_grad():
        module.weight[rank] += rank + 1
    tensor[rank] = os.getpid()


def end(rank, how):
    if rank == 0:
        time.sleep(60)
    if how == "raise":
        raise ValueError("broken")
    os.kill(os.getpid(), signal.SIGTERM) if how == "killed" else os._exit(4)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_write_the_same_parameters(method):
    module = nn.Linear(3, 2, bias=False)
    module.weight.data.zero_()
    pids = tinytorch.zeros(2, dtype=tinytorch.int64).share_memory_()
    assert module.share_memory() is module and module.weight.is_shared()
    mp.spawn(write, (module, pids), nprocs=2, start_method=method)
    assert module.weight.tolist() == [[1] * 3, [2] * 3]
    assert len({*pids.tolist(), os.getpid()}) == 3


def test_what_is_sent_through_a_queue():
    queue = mp.get_context("fork").Queue()
    for dtype in (tinytorch.float32, tinytorch.bfloat16, tinytorch.bool):
        tensor = tinytorch.zeros(2, 3, dtype=dtype).share_memory_()
        queue.put(tensor)
        received = queue.get(timeout=20)
        received.fill_(1)
        assert tensor.eq(1).all() and received.is_shared() and received.dtype is dtype
    plain = tinytorch.zeros(2)
    queue.put([plain, tensor[0]])
    for part in queue.get(timeout=20):
        part.zero_()
    assert tensor.eq(1).all() and not plain.is_shared()


def test_shared_tensors_behave_as_others(device):
    x = tinytorch.arange(4.0, device=device, requires_grad=True)
    assert x.share_memory_() is x
    (x * x).sum().backward()
    assert x.grad.tolist() == [0, 2, 4, 6]
    assert tinytorch.empty(0).share_memory_().shape == (0,)


@pytest.mark.parametrize(
    "how, error, text",
    [
        ("raise", mp.ProcessRaisedException, "ValueError: broken"),
        ("killed", mp.ProcessExitedException, "SIGTERM"),
        ("exit", mp.ProcessExitedException, "exit code 4"),
    ],
)
def test_one_process_that_fails_ends_the_others(how, error, text):
    start = time.monotonic()
    with pytest.raises(error, match=text) as caught:
        mp.spawn(end, (how,), nprocs=2, start_method="fork")
    assert caught.value.error_index == 1 and time.monotonic() - start < 30

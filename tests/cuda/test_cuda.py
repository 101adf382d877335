"""tt.cuda with a GPU, and what it says without one."""

import numpy as np
import pytest

import tinytorch as tt
from tests import strict
from tinytorch import cuda
from tinytorch.core.device import array_types, backends, register_backend

without_gpu = pytest.mark.skipif(cuda.is_available(), reason="there is a GPU here")
needs_gpu = pytest.mark.skipif(not cuda.is_available(), reason="no CuPy, or no GPU")


# --- without a GPU -----------------------------------------------------------------------------


@without_gpu
@pytest.mark.parametrize(
    "call",
    [
        lambda: tt.tensor([1.0]).to("cuda"),
        lambda: tt.tensor([1.0]).cuda(),
        lambda: tt.tensor([1.0]).to("cuda:1", non_blocking=True),
        lambda: tt.tensor([1.0], device="cuda"),
        lambda: tt.tensor([1.0]).pin_memory(),
        lambda: tt.rand(2, device="cuda:0"),
        cuda.current_device,
        cuda.get_device_name,
        cuda.get_rng_state,
        cuda.mem_get_info,
        cuda.synchronize,
        cuda.current_stream,
        cuda.Stream,
        cuda.Event,
        lambda: cuda.device(0),
        lambda: cuda.set_device(0),
    ],
)
def test_without_a_gpu_each_call_says_what_is_missing(call):
    with pytest.raises(RuntimeError, match="No CUDA device is available: CuPy "):
        call()


@without_gpu
def test_what_may_be_asked_without_a_gpu():
    assert not cuda.is_available() and cuda.device_count() == 0
    assert cuda.memory_allocated() == cuda.max_memory_allocated() == cuda.memory_reserved() == 0
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()
    cuda.manual_seed(1)
    cuda.manual_seed_all(1)
    assert str(tt.device("cuda:1")) == "cuda:1" and tt.device("cuda").type == "cuda"
    assert not tt.tensor([1.0]).is_pinned() and not tt.tensor([1.0]).is_cuda


def test_other_devices_are_refused():
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        cuda.device("cpu")


def test_the_states_of_generators(device):
    generator = tt.Generator(device)
    generator.manual_seed(4)
    state = generator.get_state()
    first = tt.rand(5, generator=generator, device=device).tolist()
    generator.set_state(state)
    assert tt.rand(5, generator=generator, device=device).tolist() == first


def test_fork_rng_leaves_the_program_outside_as_it_was(device):
    tt.manual_seed(11)
    expected = [tt.rand(3).tolist(), tt.rand(3, device=device).tolist()]
    tt.manual_seed(11)
    tt.rand(1, device=device)
    tt.manual_seed(11)
    with tt.random.fork_rng():
        tt.manual_seed(99)
        tt.rand(1000, device=device)
    assert [tt.rand(3).tolist(), tt.rand(3, device=device).tolist()] == expected
    state = tt.random.get_rng_state()
    drawn = tt.rand(3).tolist()
    tt.random.set_rng_state(state)
    assert tt.rand(3).tolist() == drawn


# --- no transfer in a training step but those that the program asks for --------------------------


@pytest.fixture
def counted():
    """The device `strict`, with a log of what goes to it and comes from it."""
    strict.register()
    plain, log = backends["strict"], []

    def from_numpy(array, index):
        log.append(("to the device", array.shape))
        return plain.from_numpy(array, index)

    def to_numpy(array):
        log.append(("to the host", array.shape))
        return plain.to_numpy(array)

    counting = type(plain)(plain.xp, plain.array_type, from_numpy, to_numpy)
    register_backend("strict", counting)
    place = tt.device("strict")
    place.__dict__["backend"] = counting
    yield log
    register_backend("strict", plain)
    place.__dict__["backend"] = plain
    assert array_types[plain.array_type] == "strict"


def test_a_training_step_transfers_nothing_unasked(counted):
    rng = np.random.default_rng(0)
    x = tt.tensor(rng.standard_normal((8, 5)).astype(np.float32), device="strict")
    target = tt.tensor(rng.integers(0, 3, 8), device="strict")
    rows = tt.arange(8, device="strict")
    weights = [
        tt.tensor(rng.standard_normal(s).astype(np.float32), device="strict", requires_grad=True)
        for s in [(5, 6), (6,), (6, 3), (3,)]
    ]
    # (Which device is meant by a name without a number is asked with an empty array.)
    assert [way for way, shape in counted if 0 not in shape] == [
        "to the device"
    ] * 6  # arange counts on the device
    counted.clear()
    losses = []
    for _ in range(3):
        w, b, v, c = weights
        hidden = (x @ w + b).relu()
        loss = -(hidden @ v + c).log_softmax(1)[rows, target].mean()
        loss.backward()
        with tt.no_grad():
            for weight in weights:
                weight.sub_(weight.grad, alpha=0.1)
                weight.grad = None
        losses.append(loss.detach())
    assert counted == []
    values = [loss.cpu().item() for loss in losses]
    assert counted == [("to the host", ())] * 3
    assert values[2] < values[0]


# --- with a GPU ----------------------------------------------------------------------------------


@pytest.mark.cuda
@needs_gpu
def test_moves_and_gradients_across_devices():
    x = tt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = x.to("cuda")
    assert y.is_cuda and y.device == tt.device("cuda:0") and y.to("cuda") is y
    (y * y).sum().backward()
    assert x.grad.device is tt.device("cpu") and x.grad.tolist() == [[2.0, 4.0], [6.0, 8.0]]
    with pytest.raises(RuntimeError, match="found at least two devices"):
        x + y
    assert cuda.get_device_name() and cuda.current_device() == 0


@pytest.mark.cuda
@needs_gpu
def test_pinned_memory():
    x = tt.rand(1 << 20)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and pinned.pin_memory() is pinned
    y = pinned.to("cuda", non_blocking=True)
    cuda.synchronize()
    assert (y.cpu().numpy() == x.numpy()).all()
    y = tt.rand(1000).pin_memory().to("cuda", non_blocking=True)  # the host memory is dropped
    assert 0 <= y.cpu().numpy().min()


@pytest.mark.cuda
@needs_gpu
def test_streams_and_events():
    a = tt.rand(2000, 2000, device="cuda")
    side = cuda.Stream()
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        assert cuda.current_stream() == side
        start.record()
        b = a @ a
        end.record()
    assert cuda.current_stream() == cuda.default_stream()
    cuda.current_stream().wait_stream(side)
    total = b.sum()
    end.synchronize()
    assert end.query() and start.elapsed_time(end) > 0
    assert total.item() > 0


@pytest.mark.cuda
@needs_gpu
def test_memory_statistics():
    cuda.empty_cache()
    before = cuda.memory_allocated()
    cuda.reset_peak_memory_stats()
    x = tt.zeros(1 << 20, device="cuda")
    assert cuda.memory_allocated() - before == 4 << 20
    y = x + 1
    del y
    assert cuda.memory_allocated() - before == 4 << 20
    assert cuda.max_memory_allocated() - before >= 8 << 20
    assert cuda.memory_reserved() >= cuda.memory_allocated()
    with pytest.raises(cuda.OutOfMemoryError, match="CUDA out of memory"):
        tt.zeros(1 << 50, dtype=tt.uint8, device="cuda")
    del x
    assert cuda.memory_allocated() == before


@pytest.mark.cuda
@needs_gpu
def test_memory_stays_flat_over_training_steps():
    w = tt.rand(256, 256, device="cuda", requires_grad=True)
    x = tt.rand(64, 256, device="cuda")
    used = set()
    for step in range(50):
        ((x @ w).relu() * 0.01).sum().backward()
        w.grad = None
        if step > 5:
            used.add(cuda.memory_allocated())
    assert len(used) == 1


@pytest.mark.cuda
@needs_gpu
def test_each_gpu_has_its_own_random_numbers():
    tt.manual_seed(5)
    first = tt.rand(10, device="cuda").tolist()
    state = cuda.get_rng_state()
    second = tt.randn(10, device="cuda").tolist()
    cuda.set_rng_state(state)
    assert tt.randn(10, device="cuda").tolist() == second
    cuda.manual_seed(5)
    assert tt.rand(10, device="cuda").tolist() == first


def test_what_programs_ask_for_before_they_choose_a_device():
    assert tt.accelerator.is_available() == tt.cuda.is_available()
    found = tt.accelerator.current_accelerator()
    assert (found is not None) == tt.cuda.is_available()
    assert not tt.backends.mps.is_available()
    assert not tt.backends.cudnn.is_available()

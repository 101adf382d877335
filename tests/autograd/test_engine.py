"""The backward pass: what it computes, what it refuses, what it shares, and what it leaves."""

import gc
import sys
import threading
import time
import tracemalloc
import weakref

import pytest

import tinytorch
from tinytorch.autograd import backward, grad


@pytest.fixture
def no_gc():
    """Switches the collector off: what dies now dies by reference count alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def leaf(data, device="cpu", **options):
    return tinytorch.tensor(data, device=device, requires_grad=True, **options)


# Right numbers.


def test_a_tensor_used_twice(device):
    x = leaf(3.0, device)
    (x * x).backward()
    assert x.grad.item() == 6.0
    x.grad = None
    (x + x + x).backward()
    assert x.grad.item() == 3.0


def test_the_diamond(device):
    x = leaf(2.0, device)
    a = x * x
    b, c = a * a, a * 3.0
    (b * c).backward()  # 3 x^6, whose slope is 18 x^5
    assert x.grad.item() == 18.0 * 2.0**5


def test_each_node_once(device):
    x = leaf(1.0, device)
    y = x
    for _ in range(60):  # 2^60 ways back to x
        y = y + y
    y.backward()
    assert x.grad.item() == 2.0**60


def test_unequal_ways_back(device):
    x = leaf(2.0, device)
    y = x * 3.0
    z = y
    for _ in range(5):
        z = z * 1.0
    (z * y).backward()  # 9 x^2
    assert x.grad.item() == 36.0


def test_gradients_add_up(device):
    x = leaf(2.0, device)
    for total in (3.0, 6.0, 9.0):
        (x * 3.0).backward()
        assert x.grad.item() == total


def test_a_leaf_is_its_own_output(device):
    x = leaf(2.0, device)
    x.backward()
    assert x.grad.item() == 1.0
    assert grad(x, x)[0].item() == 1.0
    x.backward(tinytorch.tensor(5.0, device=device))
    assert x.grad.item() == 6.0


def test_several_outputs_at_once(device):
    x = leaf(2.0, device)
    ten = tinytorch.tensor(10.0, device=device)
    backward([x * x, x * 3.0], [ten, None])
    assert x.grad.item() == 43.0


def test_a_non_scalar_with_its_gradient(device):
    x = leaf([1.0, 2.0], device)
    (x * x).backward(tinytorch.tensor([1.0, 10.0], device=device))
    assert x.grad.tolist() == [2.0, 40.0]


def test_the_shape_of_one_element_is_kept(device):
    x = leaf([[2.0]], device)
    (x * x).backward()
    assert x.grad.shape == (1, 1)


# Depth, and the end of a graph.


def test_depth_100_000(no_gc):
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y + x
    y.backward()
    assert x.grad.item() == 100_001.0
    watch = weakref.ref(y.grad_fn.edges[0][0])
    del y  # to free a chain as deep must not need a deep stack, either
    assert watch() is None


def test_a_deep_graph_that_nobody_used_is_freed(no_gc):
    y = leaf(1.0)
    for _ in range(100_000):
        y = -y
    watch = weakref.ref(y.grad_fn.edges[0][0])
    del y
    assert watch() is None


def test_a_graph_dies_with_its_last_holder(device, no_gc):
    x = leaf([1.0, 2.0], device)
    y = x * x
    z = y / x
    watched = [weakref.ref(thing) for thing in (y, y.grad_fn, z, z.grad_fn)]
    del y
    assert watched[0]() is None and watched[1]() is not None  # the graph needs the node only
    del z
    assert [ref() for ref in watched] == [None] * 4
    assert gc.collect() == 0


def test_a_graph_with_hooks_and_kept_gradients_has_no_cycle(no_gc):
    x = leaf(1.0)
    y = x * 2.0
    y.retain_grad()
    y.register_hook(lambda g: None)
    (y * y).backward(create_graph=True)
    x.grad = None  # it hangs on the graph, as PyTorch warns
    watch = weakref.ref(y.grad_fn)
    del y
    assert watch() is None


def test_memory_is_flat_without_the_collector(no_gc):
    w, b = leaf([[0.5, -0.5], [0.25, 1.0]]), leaf([0.0, 0.0])
    x = tinytorch.tensor([[1.0, 2.0], [3.0, 4.0]])
    ones = tinytorch.tensor([[1.0, 1.0], [1.0, 1.0]])

    def step():
        y = (x * w + b) / (w * w + 2.0)
        (y * y).backward(ones)
        with tinytorch.no_grad():
            for parameter in (w, b):
                parameter -= parameter.grad * 0.01
                parameter.grad = None

    for _ in range(20):
        step()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(1000):
        step()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 20_000  # 20 bytes a step; one array that stays is more than 100
    assert gc.collect() < 10


# Owners of gradients.


def test_two_leaves_never_share_a_gradient(device):
    for create_graph in (False, True):
        a, b = leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)
        seed = tinytorch.tensor([1.0, 1.0], device=device)
        (a + b).backward(seed, create_graph=create_graph)
        a.grad.detach().mul_(100.0)
        assert b.grad.tolist() == [1.0, 1.0]
        assert seed.tolist() == [1.0, 1.0]
        a.grad = b.grad = None


def test_a_gradient_is_no_view_and_may_be_written(device):
    a = leaf([[1.0], [2.0]], device)
    y = a.expand(2, 3) + 0.0
    y.backward(tinytorch.tensor([[1.0] * 3] * 2, device=device))
    wide = leaf([1.0, 2.0], device)
    seed = tinytorch.tensor(1.0, device=device).expand(2)
    wide.backward(seed)
    for x in (a, wide):
        assert x.grad.array.base is None
        x.grad.mul_(2.0)
    assert wide.grad.tolist() == [2.0, 2.0] and seed.tolist() == [1.0, 1.0]


def test_adding_to_a_gradient_leaves_the_parts_alone(device):
    seed = tinytorch.tensor([1.0, 1.0], device=device)
    x = leaf([1.0, 2.0], device)
    kept = []
    x.register_hook(lambda g: kept.append(g) or seed)
    for _ in range(2):
        (x * 2.0).backward(seed)
    assert x.grad.tolist() == [2.0, 2.0]
    assert seed.tolist() == [1.0, 1.0]
    assert [g.tolist() for g in kept] == [[2.0, 2.0]] * 2


def test_a_gradient_of_a_number_is_an_array(device):
    x = leaf(3.0, device)
    (x * x).backward()
    x.grad.mul_(2.0)
    assert x.grad.item() == 12.0
    assert type(x.grad.array) is type(x.array)


def test_a_gradient_that_a_graph_has_saved_is_not_added_to_in_silence(device):
    x, w = leaf(2.0, device), leaf(3.0, device)
    (x * x).backward()
    z = w * x.grad
    (x * x).backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_gradients_of_grad_belong_to_the_caller(device):
    x = leaf([1.0, 2.0], device)
    seed = tinytorch.tensor([1.0, 1.0], device=device)
    (g,) = grad(x + 0.0, x, seed)
    g.mul_(5.0)
    assert seed.tolist() == [1.0, 1.0]
    assert x.grad is None


# Refusals.


def test_without_a_graph_there_is_no_backward(device):
    x = tinytorch.tensor(1.0, device=device)
    for y in (x, x * 2.0, (leaf(1.0, device) * 2.0).detach()):
        with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
            y.backward()


def test_a_non_scalar_needs_a_gradient(device):
    y = leaf([1.0, 2.0], device) * 2.0
    with pytest.raises(RuntimeError, match=r"only for scalar outputs.*\[2\]"):
        y.backward()
    with pytest.raises(RuntimeError, match=r"Mismatch in shape: grad_output\[0\].*\[1\].*\[2\]"):
        y.backward(tinytorch.tensor([1.0], device=device))
    with pytest.raises(TypeError):
        y.backward(1.0)
    with pytest.raises(RuntimeError, match="2 tensors and 1 gradients"):
        backward([y, y], [tinytorch.tensor([1.0, 1.0], device=device)])


def test_a_freed_graph_refuses_a_second_backward(device):
    x = leaf(2.0, device)
    y = x * x
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        (y + x).backward()
    assert x.grad.item() == 4.0
    z = x + x  # nothing saved, nothing to free
    z.backward()
    z.backward()
    assert x.grad.item() == 8.0


def test_retain_graph(device):
    x = leaf(2.0, device)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 8.0
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_backward_frees_what_was_saved(device, no_gc):
    x = leaf([1.0, 2.0], device)
    y = x * 2.0
    z = y * y
    (watched,) = [weakref.ref(y.array)]
    del y
    assert watched() is not None
    z.backward(tinytorch.tensor([1.0, 1.0], device=device))
    assert watched() is None


# autograd.grad and backward(inputs=...).


def test_grad_touches_no_grad_attribute(device):
    x, w = leaf(2.0, device), leaf(3.0, device)
    gx, gw = grad(x * x * w, [x, w])
    assert (gx.item(), gw.item()) == (12.0, 4.0)
    assert x.grad is None and w.grad is None
    assert not gx.requires_grad


def test_grad_of_what_is_not_a_leaf(device):
    x = leaf(2.0, device)
    y = x * x
    z = y * y
    gy, gx, gz = grad(z, [y, x, z])
    assert (gy.item(), gx.item(), gz.item()) == (8.0, 32.0, 1.0)
    (gy,) = grad(y * 5.0, y)
    assert gy.item() == 5.0


def test_grad_of_an_input_that_was_not_used(device):
    x, w = leaf(2.0, device), leaf([3.0], device)
    with pytest.raises(RuntimeError, match="index 1 appears to not have been used"):
        grad(x * x, [x, w])
    assert grad(x * x, [x, w], allow_unused=True)[1] is None
    zeros = grad(x * x, [x, w], materialize_grads=True)[1]
    assert zeros.tolist() == [0.0] and zeros.device is w.device
    with pytest.raises(ValueError, match="allow_unused"):
        grad(x * x, [x, w], materialize_grads=True, allow_unused=False)


def test_grad_refuses_bad_inputs(device):
    x = leaf(2.0, device)
    with pytest.raises(RuntimeError, match="cannot be empty"):
        grad(x * x, [])
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(x * x, tinytorch.tensor(1.0, device=device))
    with pytest.raises(RuntimeError, match="cannot be empty"):
        (x * x).backward(inputs=[])
    with pytest.raises(RuntimeError, match="does not require grad"):
        (x * x).backward(inputs=[tinytorch.tensor(1.0, device=device)])


def test_grad_outputs(device):
    x = leaf([1.0, 2.0], device)
    seed = tinytorch.tensor([1.0, 10.0], device=device)
    assert grad(x * x, x, seed)[0].tolist() == [2.0, 40.0]
    assert grad([x * x], [x], [seed])[0].tolist() == [2.0, 40.0]


def test_backward_to_given_inputs_only(device):
    x, w = leaf(2.0, device), leaf(3.0, device)
    y = x * w
    z = y * y
    z.backward(inputs=[w], retain_graph=True)
    assert (x.grad, w.grad.item()) == (None, 24.0)
    z.backward(inputs=[y, x])
    assert (y.grad.item(), x.grad.item(), w.grad.item()) == (12.0, 36.0, 24.0)


def test_only_what_leads_to_the_inputs_is_visited(device):
    x, w = leaf(2.0, device), leaf(3.0, device)
    called = []
    a, b = x * x, w * w
    b.register_hook(called.append)
    assert grad(a + b, x)[0].item() == 4.0
    assert called == []


# Gradients of gradients.


def test_create_graph(device):
    x = leaf(2.0, device)
    (first,) = grad(x * x * x, x, create_graph=True)
    (second,) = grad(first, x, create_graph=True)
    (third,) = grad(second, x)
    assert (first.item(), second.item(), third.item()) == (12.0, 12.0, 6.0)
    assert first.requires_grad and second.requires_grad and not third.requires_grad


def test_backward_with_create_graph(device):
    x = leaf(2.0, device)
    y = x * x
    y.backward(create_graph=True)
    assert x.grad.requires_grad and x.grad.item() == 4.0
    first, x.grad = x.grad, None
    (first * first + y).backward()  # 4 x^2 + x^2
    assert x.grad.item() == 20.0


def test_what_is_detached_is_a_constant_also_the_second_time(device):
    for apart in (lambda x: x.detach(), lambda x: x.data, lambda x: x.clone().detach()):
        x = leaf(3.0, device)
        (first,) = grad(x * x * apart(x), x, create_graph=True)  # 2 x c
        (second,) = grad(first, x)  # 2 c
        assert (first.item(), second.item()) == (18.0, 6.0)


def test_ties_share_as_in_pytorch(device):
    def slope(function):
        x = leaf([[1.0, 3.0, 3.0]], device)
        return grad(function(x).sum(), x)[0].tolist()

    assert slope(lambda x: x.max(dim=1).values) == [[0.0, 1.0, 0.0]]  # one element is picked
    assert slope(lambda x: x.amax(dim=1)) == [[0.0, 0.5, 0.5]]  # they divide
    assert slope(lambda x: x.max()) == [[0.0, 0.5, 0.5]]
    assert slope(lambda x: tinytorch.maximum(x, x.detach())) == [[0.5, 0.5, 0.5]]


def test_a_gradient_penalty(device):
    w, x = leaf([0.5, -0.5], device), leaf([1.0, 2.0], device)
    ones = tinytorch.tensor([1.0, 1.0], device=device)
    (slope,) = grad(w * w * x, x, ones, create_graph=True)  # w^2
    (slope * slope).backward(ones)  # w^4, whose slope is 4 w^3
    assert w.grad.tolist() == [0.5, -0.5]


def test_grad_mode_is_as_before_after_an_error(device):
    x = leaf(2.0, device)
    x.register_hook(lambda g: 3)
    with pytest.raises(TypeError):
        grad(x * x, x, create_graph=True)
    assert tinytorch.is_grad_enabled()
    with tinytorch.no_grad():
        with pytest.raises(RuntimeError):
            tinytorch.tensor(1.0).backward()
        assert not tinytorch.is_grad_enabled()


# Hooks.


def test_hooks_in_order_of_registration(device):
    x = leaf(2.0, device)
    first = x.register_hook(lambda g: g + 1.0)
    x.register_hook(lambda g: g * 10.0)
    x.register_hook(lambda g: None)
    (x * 3.0).backward()
    assert x.grad.item() == 40.0
    first.remove()
    first.remove()  # twice does no harm
    x.grad = None
    (x * 3.0).backward()
    assert x.grad.item() == 30.0


def test_a_hook_on_what_is_no_leaf(device):
    x = leaf(2.0, device)
    y = x * 2.0
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    handle = y.register_hook(lambda g: g * 10.0)
    (y * y + y).backward(retain_graph=True)  # the hook sees the whole sum, once
    assert seen == [9.0]
    assert x.grad.item() == 180.0
    with handle:
        pass
    (g,) = grad(y * 1.0, x)
    assert g.item() == 2.0


def test_a_hook_may_be_removed_with_its_graph_gone(device):
    y = leaf(2.0, device) * 2.0
    handle = y.register_hook(lambda g: g)
    del y
    handle.remove()


def test_hooks_work_on_the_gradients_that_grad_returns(device):
    x = leaf(2.0, device)
    x.register_hook(lambda g: g * 7.0)
    y = x * 2.0
    y.register_hook(lambda g: g * 10.0)
    assert grad(y * 3.0, x)[0].item() == 420.0
    assert grad(y * 3.0, y)[0].item() == 30.0


def test_what_a_hook_may_not_do(device):
    for bad, error in ((lambda g: 3, TypeError), (lambda g: g.expand(2), RuntimeError)):
        x = leaf(2.0, device)
        x.register_hook(bad)
        with pytest.raises(error, match="hook"):
            (x * 1.0).backward()
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        tinytorch.tensor(1.0, device=device).register_hook(print)


def test_retain_grad(device):
    x = leaf(2.0, device)
    y = x * 2.0
    y.retain_grad()
    y.retain_grad()
    y.register_hook(lambda g: g * 10.0)  # retain_grad keeps what the hooks have made of it
    assert (y.retains_grad, x.retains_grad) == (True, False)
    (y * 3.0).backward()
    assert (y.grad.item(), x.grad.item()) == (30.0, 60.0)
    x.retain_grad()  # a leaf keeps it anyway
    assert not x.retains_grad
    assert (x * 2.0).grad is None
    with pytest.raises(RuntimeError, match="requires_grad=False"):
        tinytorch.tensor(1.0, device=device).retain_grad()


def test_post_accumulate_hooks(device):
    x = leaf(2.0, device)
    seen = []
    handle = x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.item()))
    (x * x).backward()
    (x * x).backward()
    grad(x * x, x)  # accumulates nothing
    handle.remove()
    (x * x).backward()
    assert seen == [4.0, 8.0]
    for other in (x * 1.0, tinytorch.tensor(1.0, device=device)):
        with pytest.raises(RuntimeError, match="leaf tensors that require grad"):
            other.register_post_accumulate_grad_hook(print)


def test_a_long_chain_of_views_takes_time_in_proportion_to_its_length():
    def seconds(length):
        x, start = leaf([[1.0, 2.0]]), time.process_time()
        y = x
        for _ in range(length):
            y = y.view(1, 2)
        y.sum().backward()
        assert x.grad.tolist() == [[1.0, 1.0]]
        return time.process_time() - start

    few = min(seconds(1000) for _ in range(3))
    many = min(seconds(20_000) for _ in range(2))
    assert many < 100 * few  # with a tuple of all calls in each view: 400 and more


def test_gradients_of_one_leaf_from_several_threads():
    x = tinytorch.zeros(100_000, requires_grad=True)

    def learn():
        for _ in range(20):
            (x * 1.0).sum().backward()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=learn) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)
    assert (x.grad == 160).all().item()


def test_post_accumulate_hooks_run_while_backward_goes_on(device):
    """Each leaf gets its gradient as soon as the last part of it has arrived."""
    w, v = leaf([2.0, 3.0], device), leaf([1.0, 4.0], device)
    seen = []
    for name, x in (("w", w), ("v", v)):
        x.register_post_accumulate_grad_hook(lambda x, name=name: seen.append((name, x.grad)))
    h = w * w
    h.register_hook(lambda g: seen.append("h"))
    y = h * v
    y.register_hook(lambda g: seen.append("y"))
    (y * 1.0).sum().backward()
    names = [x if isinstance(x, str) else x[0] for x in seen]
    assert names == ["y", "v", "h", "w"]
    assert seen[3][1].tolist() == [4.0, 24.0] and seen[1][1].tolist() == [4.0, 9.0]

    # A leaf that is a root itself, next to a graph; then one with a part behind a dead end.
    seen.clear()
    ones = tinytorch.ones(2, device=device)
    backward([w, (w * 2.0).sum()], [ones, None])
    assert seen == [("w", w.grad)] and w.grad.tolist() == [7.0, 27.0]

    class Half(tinytorch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return g, None

    seen.clear()
    (Half.apply(v * 3.0, v * 5.0) * v).sum().backward()
    assert [name for name, _ in seen] == ["v"]
    assert v.grad.tolist() == [4.0 + 3 + 8, 9.0 + 3 * 4 + 32]


def test_a_hook_may_move_its_leaf_while_backward_goes_on(device):
    """An optimizer's step inside backward: no node needs the old value any more."""
    weights = [leaf([1.0, 2.0], device) for _ in range(4)]
    alive = []

    def move(w):
        alive.append(sum(w.grad is not None for w in weights))
        with tinytorch.no_grad():
            w -= 0.5 * w.grad
        w.grad = None

    for w in weights:
        w.register_post_accumulate_grad_hook(move)
    y = tinytorch.ones(2, device=device)
    for w in weights:
        y = y * w
    y.sum().backward()
    assert max(alive) == 1 and len(alive) == 4
    assert all(w.tolist() == [0.5, 2.0 - 0.5 * 8] for w in weights)


def test_a_leaf_that_was_frozen_after_forward_gets_no_gradient(device):
    w = tinytorch.ones(2, device=device, requires_grad=True)
    v = tinytorch.ones(2, device=device, requires_grad=True)
    seen = []
    w.register_hook(seen.append)
    w.register_post_accumulate_grad_hook(lambda w: seen.append("after"))
    y = (w * v).sum()
    w.requires_grad_(False)
    y.backward()
    assert w.grad is None and v.grad.tolist() == [1.0, 1.0]
    assert len(seen) == 2 and seen[1] == "after"

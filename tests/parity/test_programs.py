"""Small programs of the kinds that people write, run under PyTorch and under tinytorch: what they
print is the same text, with numbers that are the same to four digits.

A program is a function of the library, so that only the import differs. What it draws at random it
draws from NumPy.
"""

import contextlib
import copy
import importlib
import io
import math
import pickle
import re
import warnings

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

PROGRAMS = []
NUMBER = re.compile(r"-?\d+\.\d*(?:e[-+]\d+)?|-?\d+e[-+]\d+")


def program(function):
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


def fill(torch, module, seed=0):
    """The same numbers into the parameters of a module, whichever library it is of."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.tensor(rng.uniform(-0.5, 0.5, tuple(p.shape)).astype(np.float32)))
    return module


def drawn(torch, *shape, seed=1):
    return torch.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def printed(function, library):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), warnings.catch_warnings():
        warnings.simplefilter("ignore" if library is torch else "error")
        function(library)
    return re.sub(r"0x[0-9a-f]+", "0x", text.getvalue()).replace("tinytorch", "torch")


@pytest.mark.parametrize("function", PROGRAMS)
def test_a_program_prints_the_same_under_both(function):
    theirs, ours = printed(function, torch), printed(function, tinytorch)
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (ours, theirs)]
    np.testing.assert_allclose(*numbers, rtol=1e-3, atol=2e-4)


@program
def a_polynomial_without_autograd(torch):
    torch.set_default_device(torch.device("cpu"))
    x = torch.linspace(-math.pi, math.pi, 200, dtype=torch.float)
    y = torch.sin(x)
    a, b = torch.full((), 0.1), torch.full((), -0.2)
    for _ in range(20):
        wrong = 2.0 * (a + b * x**3 - y)
        a -= 1e-6 * wrong.sum()
        b -= 1e-6 * (wrong * x**3).sum()
    print(f"y = {a.item():.4f} + {b.item():.4f} x^3", (a + b * x - y).pow(2).sum().item())
    torch.set_default_device(None)


@program
def a_sparse_matrix_that_is_printed(torch):
    places, values = torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0])
    sparse = torch.sparse_coo_tensor(places, values, (2, 3))
    print(sparse, sparse.coalesce(), sparse.t().coalesce())
    print(torch.sparse_coo_tensor(torch.arange(60).view(2, 30), torch.arange(30.0), (30, 60)))


@program
def what_the_tensor_tutorial_prints(torch):
    data = torch.tensor([[1, 2], [3, 4]])
    print(f"Ones Tensor: \n {torch.ones_like(data)} \n", data.dtype, data.shape, data.device)
    x = torch.ones(4, 4)
    x[:, 1] = 0
    print("First row:", x[0], "Last column:", x[..., -1], torch.cat([x, x], dim=1))
    y = torch.zeros(4, 4)
    torch.matmul(x, x.T, out=y)
    print(y, torch.mul(x, x, out=y) is y, y, torch.add(x, x, out=torch.empty(0)))
    n = x.numpy()
    np.add(n, 1, out=n)
    print(x.sum().item(), x.add_(5), torch.from_numpy(n).mean())
    print(torch.accelerator.is_available() and "?", torch.backends.mps.is_available())


@program
def what_the_autograd_tutorial_prints(torch):
    a = torch.tensor([2.0, 3.0], requires_grad=True)
    b = torch.tensor([6.0, 4.0], requires_grad=True)
    q = 3 * a**3 - b**2
    q.backward(gradient=torch.tensor([1.0, 1.0]))
    print(9 * a**2 == a.grad, -2 * b == b.grad, q)
    eye = torch.eye(4, 5, requires_grad=True)
    out = (eye + 1).pow(2).t()
    out.backward(torch.ones_like(out), retain_graph=True)
    out.backward(torch.ones_like(out))
    print(eye.grad, eye.grad.zero_())
    with torch.no_grad():
        print((a * 2).requires_grad, torch.is_grad_enabled())
    print((a * b).detach().requires_grad, a.is_leaf, (a * b).is_leaf)


@program
def functions_of_ones_own(torch):
    from importlib import import_module

    name = torch.__name__
    once_differentiable = import_module(f"{name}.autograd.function").once_differentiable

    class Legendre(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 0.5 * (5 * x**3 - 3 * x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 1.5 * (5 * x**2 - 1)

    class Sort(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            values, order = x.sort()
            ctx.mark_non_differentiable(order)
            ctx.save_for_backward(order)
            return values, order

        @staticmethod
        @once_differentiable
        def backward(ctx, g, _):
            (order,) = ctx.saved_tensors
            return torch.zeros_like(g).index_add_(0, order, g)

    x = torch.tensor([0.5, -1.0, 0.1], dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(Legendre.apply(x).sum(), x, create_graph=True)
    (g2,) = torch.autograd.grad(g.sum(), x)
    print(g, g2, torch.autograd.gradcheck(Legendre.apply, x), Legendre.apply(x))
    values, order = Sort.apply(x)
    (values * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    print(values, order, x.grad)


@program
def a_network_with_a_loader(torch):
    nn, data = torch.nn, torch.utils.data
    x, y = drawn(torch, 60, 5), torch.arange(60) % 3
    loader = data.DataLoader(data.TensorDataset(x, y), batch_size=16)
    model = nn.Sequential(nn.Flatten(), nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    fill(torch, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for _ in range(4):
        model.train()
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            correct = (model(x).argmax(1) == y).type(torch.float).sum().item()
        print(f"loss: {loss.item():>7f}  [{len(xb):>5d}/{len(loader.dataset):>5d}] {correct:>0.1f}")
    print(model, len(loader), scheduler.get_last_lr())


@program
def labels_by_scatter(torch):
    to_one_hot = lambda y: torch.zeros(5).scatter_(0, torch.tensor(y), value=1)  # noqa: E731
    print(to_one_hot(3), torch.nn.functional.one_hot(torch.tensor([1, 0]), num_classes=3))


@program
def a_language_model_of_bigrams(torch):
    words = ["emma", "olivia", "ava", "isabella", "sophia"]
    stoi = {s: i + 1 for i, s in enumerate(sorted(set("".join(words))))} | {".": 0}
    size = len(stoi)
    counts = torch.zeros((size, size), dtype=torch.int32)
    pairs = [(stoi[a], stoi[b]) for w in words for a, b in zip("." + w, w + ".", strict=True)]
    for a, b in pairs:
        counts[a, b] += 1
    p = (counts + 1).float()
    p /= p.sum(1, keepdims=True)
    likelihood = 0.0
    for a, b in pairs[:5]:
        likelihood += torch.log(p[a, b])
    print(f"{likelihood=} {-likelihood / 5:.4f}", counts[0], p[0].sum())
    xs, ys = (torch.tensor(side) for side in zip(*pairs, strict=True))
    w = drawn(torch, size, size).requires_grad_()
    for _ in range(5):
        logits = torch.nn.functional.one_hot(xs, num_classes=size).float() @ w
        probs = logits.exp() / logits.exp().sum(1, keepdims=True)
        loss = -probs[torch.arange(len(xs)), ys].log().mean() + 0.01 * (w**2).mean()
        w.grad = None
        loss.backward()
        w.data += -10 * w.grad
    print(loss.item(), w.grad[:2, :3])


@program
def an_autoencoder_that_draws(torch):
    class VAE(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.mean = torch.nn.Linear(6, 4), torch.nn.Linear(4, 2)
            self.spread, self.outer = torch.nn.Linear(4, 2), torch.nn.Linear(2, 6)

        def forward(self, x):
            h = torch.relu(self.inner(x))
            mean, logvar = self.mean(h), self.spread(h)
            std = logvar.mul(0.5).exp_()
            z = drawn(torch, *std.shape, seed=3).mul(std).add_(mean)
            return torch.sigmoid(self.outer(z)), mean, logvar

    model, x = fill(torch, VAE()), torch.sigmoid(drawn(torch, 10, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(5):
        again, mean, logvar = model(x)
        error = torch.nn.functional.binary_cross_entropy(again, x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
        optimizer.zero_grad()
        (error + divergence).backward()
        optimizer.step()
    print(model, error.item(), divergence.item(), again[0])


@program
def a_gradient_penalty(torch):
    critic = torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.LeakyReLU(0.2), torch.nn.Linear(8, 1)
    )
    fill(torch, critic)
    x = drawn(torch, 6, 3).requires_grad_(True)
    d = critic(x)
    (g,) = torch.autograd.grad(
        outputs=d, inputs=x, grad_outputs=torch.ones_like(d), create_graph=True, only_inputs=True
    )
    penalty = ((g.norm(2, dim=1) - 1) ** 2).mean()
    (d.mean() + 10 * penalty).backward()
    print(penalty.item(), critic[0].weight.grad, critic[2].bias.grad)


@program
def a_differential_equation(torch):
    net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    fill(torch, net)
    x = torch.linspace(0, 1, 9).reshape(-1, 1).requires_grad_()
    u = net(x)
    (du,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
    (d2u,) = torch.autograd.grad(du, x, torch.ones_like(du), create_graph=True)
    loss = (d2u + math.pi**2 * torch.sin(math.pi * x)).pow(2).mean() + net(x[:1]).square().sum()
    loss.backward()
    print(loss.item(), net[0].weight.grad.flatten())


@program
def attention_by_hand(torch):
    rows, columns, heads = 2, 4, 2
    x = drawn(torch, rows, columns, 6)
    project = fill(torch, torch.nn.Linear(6, 18, bias=False))
    q, k, v = project(x).split(6, dim=2)
    q, k, v = (t.view(rows, columns, heads, 3).transpose(1, 2) for t in (q, k, v))
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    seen = torch.tril(torch.ones(columns, columns)).view(1, 1, columns, columns)
    scores = scores.masked_fill(seen == 0, float("-inf"))
    weights = torch.nn.functional.softmax(scores, dim=-1)
    y = (weights @ v).transpose(1, 2).contiguous().view(rows, columns, 6)
    y.square().mean().backward()
    print(weights[0, 0], y[0, -1].detach(), project.weight.grad[0])


@program
def a_replay_memory(torch):
    net = fill(torch, torch.nn.Linear(3, 2))
    states, actions = drawn(torch, 5, 3), torch.tensor([[0], [1], [1], [0], [1]])
    ends = torch.tensor([True, False, True, True, False])
    best = torch.zeros(5)
    with torch.no_grad():
        best[ends] = net(states[ends]).max(1).values
    wanted = best * 0.9 + torch.arange(5.0)
    taken = net(states).gather(1, actions)
    loss = torch.nn.SmoothL1Loss()(taken, wanted.unsqueeze(1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    print(loss.item(), best, net.weight.grad, net.bias.grad)


@program
def an_optimizer_of_ones_own(torch):
    class Slow(torch.optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            with torch.enable_grad():
                loss = None if closure is None else closure()
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state.setdefault("mean", torch.zeros_like(p)).lerp_(p.grad, 0.5)
                    p.add_(state["mean"], alpha=-group["lr"])
            return loss

    p = torch.tensor([-1.5, 1.5], requires_grad=True)
    optimizer = Slow([p])

    def closure():
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    print([round(optimizer.step(closure).item(), 4) for _ in range(3)], p, list(optimizer.state[p]))


@program
def an_optimizer_of_2019(torch):
    """Numbers before tensors: add_(number, tensor), addcmul_(number, tensor, tensor)."""

    class Adam(torch.optim.Optimizer):
        def __init__(self, params, lr=0.1, betas=(0.9, 0.999)):
            super().__init__(params, dict(lr=lr, betas=betas))

        def step(self):
            for group in self.param_groups:
                (b1, b2), lr = group["betas"], group["lr"]
                for p in group["params"]:
                    grad, state = p.grad.data, self.state[p]
                    if not state:
                        state["m"], state["v"] = torch.zeros_like(p.data), torch.zeros_like(p.data)
                    state["m"].mul_(b1).add_(1 - b1, grad)
                    state["v"].mul_(b2).addcmul_(1 - b2, grad, grad)
                    p.data.addcdiv_(-lr, state["m"], state["v"].sqrt().add_(1e-8))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = fill(torch, torch.nn.Linear(3, 2))
        optimizer = Adam(model.parameters())
        for seed in range(4):
            optimizer.zero_grad()
            loss = (model(drawn(torch, 5, 3, seed=seed)) ** 2).mean()
            loss.backward()
            optimizer.step()
            for p in model.parameters():
                p.data.sub_(0.01, p.data).add_(-0.5, p.grad.data)
            print(loss.item())
        x, y = drawn(torch, 3), drawn(torch, 3, seed=2)
        print(torch.add(x, 2, y), torch.sub(x, -0.5, y), x.add(torch.tensor(3.0), y), x.add(1.5, 2))
        print(torch.addcmul(x, 2, y, y), x.addcdiv(-1, y, x), model.weight, model.bias)
        for wrong in (
            lambda: x.add(y, y),
            lambda: x.add(y, 2),
            lambda: x.add_(2, y, y),
            lambda: x.sub(1, 2, 3),
            lambda: x.add(2, y, alpha=3),
            lambda: x.add(y[:1], y),
            lambda: x.addcmul(y, y, 2),
            lambda: x.addcdiv_(2, y, y, y),
            lambda: x.addcmul(1, 2, 3),
        ):
            try:
                print(wrong())
            except TypeError as error:
                print(type(error))
        print(x)


@program
def what_older_programs_write(torch):
    x = torch.autograd.Variable(torch.FloatTensor([1.0, 2.0]), requires_grad=True)
    print(x, isinstance(x, torch.FloatTensor), (x > 1).type(torch.LongTensor))
    print(torch.LongTensor(x.size()).zero_(), x.type(torch.int32))
    target = torch.empty(100, dtype=torch.long).random_(5)
    print(
        target.min() >= 0, target.max() < 5, torch.finfo(torch.float64), torch.iinfo(torch.int8).max
    )


@program
def python_and_numpy_around_a_tensor(torch):
    x, a = torch.tensor([1.0, 4.0]), np.array([2.0, 3.0], np.float32)
    print(x + a, x == a, np.sqrt(x), np.float64(2.0) * x, (x * a).dtype, x.numpy() @ a)
    print(2 in torch.tensor([1, 2]), list(torch.arange(3)), [10, 20, 30][torch.tensor(1)])
    print(sum(x), max(x), round(x[1].item()), f"{x[0]:.2f} {x[1]} {x}", bool(x[0]))
    print(copy.deepcopy(torch.ones(2, requires_grad=True)), pickle.loads(pickle.dumps(x)))
    (first, *rest), (c, d) = torch.arange(4), torch.eye(2)
    print(first, rest, c, d, torch.arange(9)[torch.tensor(2) : torch.tensor(7) : 2], len(x))


@program
def optimizers_and_schedulers_of_other_people(torch):
    from_module = vars(importlib.import_module(f"{torch.__name__}.optim.optimizer"))
    schedulers = importlib.import_module(f"{torch.__name__}.optim.lr_scheduler")
    required = from_module["required"]

    class Sign(torch.optim.Optimizer):
        def __init__(self, params, lr=required):
            super().__init__(params, {"lr": lr})

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad.is_sparse:
                        raise RuntimeError("sparse gradients are not supported")
                    p.data.add_(p.grad.sign(), alpha=-group["lr"])

    class Lookahead(torch.optim.Optimizer):
        def __init__(self, inner):  # it does not call Optimizer.__init__
            self.inner, self.param_groups, self.state = inner, inner.param_groups, {}

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    slow = self.state.setdefault(p, p.data.clone())
                    p.data.copy_(slow.lerp_(p.data, 0.5))
            return self.inner.step(closure)

    class Warmup(schedulers._LRScheduler):
        def get_lr(self):
            return [rate * min(1.0, (self.last_epoch + 1) / 4) for rate in self.base_lrs]

    model = fill(torch, torch.nn.Linear(3, 2))
    optimizer = Lookahead(Sign(model.parameters(), lr=0.1))
    scheduler = Warmup(optimizer.inner)
    for _ in range(6):
        model.zero_grad()
        model(drawn(torch, 4, 3)).square().sum().backward()
        optimizer.step()
        scheduler.step()
        print(scheduler.get_last_lr())
    print(model.weight.tolist(), required)
    try:
        Sign(model.parameters())
    except ValueError as error:
        print(type(error).__name__, "lr" in str(error))


@program
def a_walk_through_the_graph_of_reversed_operators(torch):
    a = torch.linspace(0.0, 1.0, steps=3, requires_grad=True)
    node = (1 + 2 * torch.sin(a)).grad_fn
    while node is not None:
        print(str(node).partition(" ")[0], len(node.next_functions))
        node = node.next_functions[0][0] if node.next_functions else None


@program
def types_and_fans_by_the_names_that_people_use(torch):
    for kind in (float, int, bool):
        print(torch.ones(2, dtype=kind).dtype, torch.zeros(1).to(kind).dtype)
    weight = torch.empty(4, 3, 2)
    print(torch.nn.init._calculate_fan_in_and_fan_out(weight), torch.zeros(1).is_sparse)


@program
def a_module_that_passes_questions_on(torch):
    class Wrapped(torch.nn.Module):  # as DataParallel is
        def __init__(self, module):
            super().__init__()
            self.module = module

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.module, name)

        def forward(self, *args):
            return self.module(*args)

    model = Wrapped(fill(torch, torch.nn.Linear(3, 2)))
    print(model.in_features, model.weight.shape, list(model.state_dict()), model)
    print(model(drawn(torch, 2, 3)).tolist(), hasattr(model, "nothing"))
    try:
        print(model.nothing)
    except AttributeError as error:
        print(error)


@program
def tensors_of_all_sizes(torch):
    print(torch.arange(2000), torch.arange(10000.0).view(100, 100), torch.zeros(2, 2, 1, 2))
    print(torch.tensor([1e-8, 1e8]), torch.tensor([1e5, 1.5]), torch.tensor([float("nan"), 1.0]))
    print(torch.empty(0, 3), torch.tensor([]), torch.tensor(True), torch.ones(2).half())
    print(torch.ones(2, dtype=torch.float64, requires_grad=True), torch.tensor([[1, -200], [3, 4]]))
    print(torch.max(torch.tensor([[1, 2], [3, 0]]), 1), torch.Size([2, 3]), torch.device("cpu"))
    torch.set_printoptions(precision=2, sci_mode=True)
    print(torch.tensor([1.23456, 200.0]))
    torch.set_printoptions(profile="default")
    x = torch.ones(2, 3, requires_grad=True)
    print(x + 1, x * 2, x.sum(), x.mean(), x / 2, x.exp(), x[:1], x.relu(), x.sum().sqrt())


@program
def a_state_that_is_saved_and_taken_up_again(torch):
    model = fill(torch, torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)))
    x = drawn(torch, 8, 2)

    def train(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        return loss.item()

    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    print(train(model, optimizer, 3))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}, file)
    file.seek(0)
    kept = torch.load(file, weights_only=True)
    again = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    print(again.load_state_dict(kept["model"]), list(kept["model"]), kept["step"])
    second = torch.optim.Adam(again.parameters(), lr=0.5)
    second.load_state_dict(kept["optimizer"])
    print(train(model, optimizer, 3) == train(again, second, 3))

"""What is measured. One source serves tinytorch and PyTorch: only the import differs."""

from types import ModuleType
from typing import Any

import numpy as np


def as_it_is(function: Any) -> Any:
    return function


def chain(
    torch: ModuleType, operations: int = 999, size: int = 10, compiled: Any = as_it_is
) -> Any:
    """Forward and backward through a chain of mul, add and tanh over a few elements. `compiled`
    is what is done to functions, networks and steps of optimizers: nothing, or compile."""
    rng = np.random.default_rng(0)
    make = [rng.random(size, dtype=np.float32) for _ in range(3)]
    x, w, b = (torch.tensor(a, requires_grad=True) for a in make)
    ones = torch.ones(size)

    @compiled
    def value(y: Any, w: Any, b: Any) -> Any:
        for _ in range(operations // 3):
            y = y * w
            y = y + b
            y = y.tanh()
        return y

    def step() -> None:
        value(x, w, b).backward(ones)
        x.grad = w.grad = b.grad = None

    return step


def mlp(torch: ModuleType, batch: int, sizes: tuple[int, ...] = (784, 256, 128, 10)) -> Any:
    """One training step of an MLP with ReLU, cross entropy and SGD, from nothing but tensors."""
    rng = np.random.default_rng(0)
    weights, biases = [], []
    for n_in, n_out in zip(sizes, sizes[1:], strict=False):
        start = (rng.standard_normal((n_in, n_out)) * (2 / n_in) ** 0.5).astype(np.float32)
        weights.append(torch.tensor(start, requires_grad=True))
        biases.append(torch.zeros(n_out, requires_grad=True))
    x = torch.tensor(rng.standard_normal((batch, sizes[0])).astype(np.float32))
    t = torch.tensor(rng.integers(0, sizes[-1], batch))
    rows = torch.arange(batch)
    parameters = [*weights, *biases]

    def step() -> None:
        h = x
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            h = (h @ weight + bias).relu()
        logits = h @ weights[-1] + biases[-1]
        loss = -logits.log_softmax(1)[rows, t].mean()
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p.sub_(p.grad, alpha=0.01)
                p.grad = None

    return step


def nn_mlp(
    torch: ModuleType,
    batch: int,
    sizes: tuple[int, ...] = (784, 256, 128, 10),
    compiled: Any = as_it_is,
) -> Any:
    """One training step of the same MLP as a Module, with cross_entropy and Adam."""
    nn = torch.nn
    rng = np.random.default_rng(0)
    layers = []
    for n_in, n_out in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.tensor(rng.standard_normal((batch, sizes[0])).astype(np.float32))
    t = torch.tensor(rng.integers(0, sizes[-1], batch))

    update = compiled(optimizer.step)

    @compiled
    def loss_of(x: Any, t: Any) -> Any:
        return nn.functional.cross_entropy(model(x), t)

    def step() -> None:
        optimizer.zero_grad()
        loss = loss_of(x, t)
        loss.backward()
        update()

    return step


def cnn(torch: ModuleType, batch: int, compiled: Any = as_it_is) -> Any:
    """One training step of the network of PyTorch's mnist example, on random pictures."""
    nn = torch.nn
    rng = np.random.default_rng(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.tensor(rng.standard_normal((batch, 1, 28, 28)).astype(np.float32))
    t = torch.tensor(rng.integers(0, 10, batch))

    update = compiled(optimizer.step)

    @compiled
    def loss_of(x: Any, t: Any) -> Any:
        return nn.functional.cross_entropy(model(x), t)

    def step() -> None:
        optimizer.zero_grad()
        loss = loss_of(x, t)
        loss.backward()
        update()

    return step


def transposed(torch: ModuleType, batch: int) -> Any:
    """Forward and backward through a DCGAN's generator: 100 numbers to pictures of 32 x 32."""
    nn = torch.nn
    rng = np.random.default_rng(0)
    model = nn.Sequential(
        *(nn.ConvTranspose2d(100, 128, 4, 1, 0), nn.ReLU()),
        *(nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.ReLU()),
        *(nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU()),
        *(nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh()),
    )
    x = torch.tensor(rng.standard_normal((batch, 100, 1, 1)).astype(np.float32))

    def step() -> None:
        model.zero_grad()
        model(x).mean().backward()

    return step


def lstm(torch: ModuleType, batch: int = 32, steps: int = 64, hidden: int = 128) -> Any:
    """One training step of a model of letters: a table, an LSTM, a linear layer, and Adam."""
    nn, letters = torch.nn, 64
    rng = np.random.default_rng(0)
    table, layer = nn.Embedding(letters, hidden), nn.LSTM(hidden, hidden)
    head = nn.Linear(hidden, letters)
    optimizer = torch.optim.Adam([p for m in (table, layer, head) for p in m.parameters()])
    x, t = (torch.tensor(rng.integers(0, letters, (steps, batch))) for _ in range(2))

    def step() -> None:
        optimizer.zero_grad()
        scores = head(layer(table(x))[0])
        loss = nn.functional.cross_entropy(scores.reshape(-1, letters), t.reshape(-1))
        loss.backward()
        optimizer.step()

    return step


def gpt(
    torch: ModuleType,
    block: int,
    batch: int = 12,
    layers: int = 4,
    width: int = 128,
    heads: int = 4,
    compiled: Any = as_it_is,
) -> Any:
    """One training step of a GPT in the form of nanoGPT: 65 letters, AdamW, clipped gradients."""
    nn, letters = torch.nn, 65

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def attend(self, x):
            n, t, c = x.size()
            q, k, v = (
                part.view(n, t, heads, c // heads).transpose(1, 2)
                for part in self.c_attn(x).split(c, dim=2)
            )
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.c_proj(y.transpose(1, 2).contiguous().view(n, t, c))

        def forward(self, x):
            x = x + self.attend(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(letters, width), nn.Embedding(block, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

        def forward(self, text):
            x = self.wte(text) + self.wpe(torch.arange(text.size(1)))
            return self.head(self.ln_f(self.blocks(x)))

    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters())
    rng = np.random.default_rng(0)
    text, wanted = (torch.tensor(rng.integers(0, letters, (batch, block))) for _ in range(2))

    update = compiled(optimizer.step)

    @compiled
    def loss_of(text: Any, wanted: Any) -> Any:
        logits = model(text)
        return nn.functional.cross_entropy(logits.view(-1, letters), wanted.view(-1))

    def step() -> None:
        optimizer.zero_grad()
        loss_of(text, wanted).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update()

    return step


def adam(
    torch: ModuleType,
    tensors: int = 20,
    shape: tuple[int, int] = (250, 200),
    compiled: Any = as_it_is,
) -> Any:
    """One step of Adam over a million parameters in 20 tensors."""
    rng = np.random.default_rng(0)
    parameters = []
    for _ in range(tensors):
        start = rng.standard_normal(shape).astype(np.float32)
        parameters.append(torch.tensor(start, requires_grad=True))
        parameters[-1].grad = torch.tensor(rng.standard_normal(shape).astype(np.float32))
    return compiled(torch.optim.Adam(parameters).step)


def gelu(torch: ModuleType, compiled: Any = as_it_is) -> Any:
    """GELU of a million numbers, without gradients."""
    x = torch.tensor(np.random.default_rng(0).standard_normal(10**6).astype(np.float32))
    function = compiled(torch.nn.functional.gelu)
    return lambda: function(x)


def peeking(
    torch: ModuleType,
    batch: int = 256,
    width: int = 128,
    compiled: Any = as_it_is,
    peek: bool = True,
) -> Any:
    """Forward and backward of four blocks; after two of them the program looks at a value."""
    nn = torch.nn

    def block() -> Any:
        layers = nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width)
        return nn.Sequential(*layers)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([block() for _ in range(4)])

        def forward(self, x: Any) -> Any:
            for number, part in enumerate(self.blocks):
                x = x + part(x)
                if peek and number == 1 and x.mean().item() > 1e6:
                    raise OverflowError
            return x

    network = compiled(Network())
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.standard_normal((batch, width)).astype(np.float32))

    def step() -> None:
        network(x).sum().backward()

    return step


def operations(torch: ModuleType, size: int = 16384) -> dict[str, Any]:
    """Single operations that are not one call of NumPy, each under the title of its line."""
    rng = np.random.default_rng(0)
    functional = torch.nn.functional
    numbers = rng.standard_normal(size).astype(np.float32)
    x, leaf = torch.tensor(numbers), torch.tensor(numbers, requires_grad=True)
    ones, lists = torch.ones(size), rng.standard_normal((128, size // 128)).tolist()
    table = torch.tensor(rng.standard_normal((128, 784)).astype(np.float32))
    rows = [table[i] for i in range(64)]
    squares = torch.tensor(rng.standard_normal((32, 4, 16, 16)).astype(np.float32))
    few = [torch.tensor(numbers[:12].reshape(3, 4), requires_grad=True) for _ in range(3)]
    guesses = torch.tensor(rng.standard_normal((8, 50257)).astype(np.float32))
    pictures = rng.standard_normal((64, 32, 28, 28)).astype(np.float32)
    images, small = torch.tensor(pictures, requires_grad=True), torch.ones(64, 32, 14, 14)

    def pooled(function: Any) -> Any:
        def step() -> None:
            function(images, 2).backward(small)
            images.grad = None

        return step

    def both_ways(operation: Any) -> Any:
        def step() -> None:
            operation(leaf).backward(ones)
            leaf.grad = None

        return step

    return {
        "x ** 5": lambda: x**5,
        "x ** 5, both ways": both_ways(lambda x: x**5),
        "erf": lambda: torch.erf(x),
        "gelu": lambda: functional.gelu(x),
        "gelu, both ways": both_ways(functional.gelu),
        "gelu by tanh": lambda: functional.gelu(x, approximate="tanh"),
        "tensor(128 lists)": lambda: torch.tensor(lists),
        "x[i]": lambda: table[3],
        "stack of 64 rows": lambda: torch.stack(rows),
        "log_softmax of one row": lambda: torch.log_softmax(x[:1000], 0),
        "softmax [32, 4, 16, 16]": lambda: torch.softmax(squares, 3),
        "cat of 3 small ones": lambda: torch.cat(few),
        "topk, 8 rows of 50257": lambda: torch.topk(guesses, 50),
        "max_pool2d, both ways": pooled(functional.max_pool2d),
        "avg_pool2d, both ways": pooled(functional.avg_pool2d),
        "bilinear, twice as large": lambda: functional.interpolate(
            images, scale_factor=2, mode="bilinear"
        ),
    }


def normalisations(torch: ModuleType) -> dict[str, Any]:
    """Forward and backward of a normalisation, each under the title of its line."""
    rng = np.random.default_rng(0)

    def both_ways(layer: Any, *shape: int) -> Any:
        x = torch.tensor(rng.standard_normal(shape).astype(np.float32), requires_grad=True)
        g = torch.tensor(rng.standard_normal(shape).astype(np.float32))

        def step() -> None:
            layer.zero_grad()
            x.grad = None
            layer(x).backward(g)

        return step

    return {
        "LayerNorm [2048, 128]": both_ways(torch.nn.LayerNorm(128), 2048, 128),
        "BatchNorm2d [64, 32, 28, 28]": both_ways(torch.nn.BatchNorm2d(32), 64, 32, 28, 28),
        "BatchNorm1d [128, 64]": both_ways(torch.nn.BatchNorm1d(64), 128, 64),
    }


def dezero_chain(operations: int = 999, size: int = 10) -> Any:
    """The chain in DeZero 0.0.13."""
    import dezero.functions as F
    from dezero import Variable

    rng = np.random.default_rng(0)
    x, w, b = (Variable(rng.random(size, dtype=np.float32)) for _ in range(3))

    def step() -> None:
        y = x
        for _ in range(operations // 3):
            y = F.tanh(y * w + b)
        y.grad = Variable(np.ones(size, np.float32))
        y.backward()
        for v in (x, w, b):
            v.cleargrad()

    return step


def dezero_mlp(
    batch: int, sizes: tuple[int, ...] = (784, 256, 128, 10), optimizer: str = "SGD"
) -> Any:
    """The MLP step in DeZero 0.0.13, with its weights set to float32 as its data is."""
    import dezero.functions as F
    from dezero import Variable, optimizers
    from dezero.models import MLP

    rng = np.random.default_rng(0)
    model = MLP(sizes[1:], activation=F.relu)
    x = Variable(rng.standard_normal((batch, sizes[0])).astype(np.float32))
    t = rng.integers(0, sizes[-1], batch)
    model(x)
    for p in model.params():
        p.data = p.data.astype(np.float32)
    options = {"SGD": (np.float32(0.01),), "Adam": ()}[optimizer]
    mover = getattr(optimizers, optimizer)(*options).setup(model)

    def step() -> None:
        loss = F.softmax_cross_entropy(model(x), t)
        model.cleargrads()
        loss.backward()
        mover.update()

    return step


def hips_chain(operations: int = 999, size: int = 10) -> Any:
    """The chain in HIPS autograd."""
    import autograd.numpy as anp
    from autograd import grad

    rng = np.random.default_rng(0)
    start = tuple(rng.random(size, dtype=np.float32) for _ in range(3))

    def value(arrays: tuple) -> Any:
        x, w, b = arrays
        for _ in range(operations // 3):
            x = anp.tanh(x * w + b)
        return anp.sum(x)

    gradient = grad(value)
    return lambda: gradient(start)


def hips_mlp(batch: int, sizes: tuple[int, ...] = (784, 256, 128, 10)) -> Any:
    """The MLP step in HIPS autograd."""
    import autograd.numpy as anp
    from autograd import grad

    rng = np.random.default_rng(0)
    layers = []
    for n_in, n_out in zip(sizes, sizes[1:], strict=False):
        weight = (rng.standard_normal((n_in, n_out)) * (2 / n_in) ** 0.5).astype(np.float32)
        layers.append((weight, np.zeros(n_out, np.float32)))
    x = rng.standard_normal((batch, sizes[0])).astype(np.float32)
    t = rng.integers(0, sizes[-1], batch)
    rows = np.arange(batch)

    def loss(layers: list) -> Any:
        h = x
        for weight, bias in layers[:-1]:
            h = anp.maximum(anp.dot(h, weight) + bias, np.float32(0))
        logits = anp.dot(h, layers[-1][0]) + layers[-1][1]
        shifted = logits - anp.max(logits, axis=1, keepdims=True)
        logp = shifted - anp.log(anp.sum(anp.exp(shifted), axis=1, keepdims=True))
        return -anp.mean(logp[rows, t])

    gradient = grad(loss)

    def step() -> None:
        for (weight, bias), (gw, gb) in zip(layers, gradient(layers), strict=True):
            np.subtract(weight, np.float32(0.01) * gw, out=weight)
            np.subtract(bias, np.float32(0.01) * gb, out=bias)

    return step

"""Random programs, eager and compiled: `python -m tests.compiler.random_programs 0 2000 c`.

A program is a list of statements on a pool of tensors: arithmetic, reductions, views, writes in
place, random numbers, indexing. What a statement makes goes back into the pool. Statements that do
not fit raise, in eager and compiled alike, and are passed over.
"""

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import tinytorch
from tinytorch.nn import functional as F


def in_place(write: Callable) -> Callable:
    """A statement that writes into a copy of its first operand."""

    def statement(x, y, r):
        z = x * 1.0
        write(z, y, r)
        return z

    return statement


STATEMENTS: list[Callable] = [
    *(lambda x, y, r: x + y, lambda x, y, r: x * y, lambda x, y, r: x - r, lambda x, y, r: -x),
    *(lambda x, y, r: x / (y.abs() + 1), lambda x, y, r: x.exp().clamp(max=10)),
    *(lambda x, y, r: (x * x + 1).log(), lambda x, y, r: (x.abs() + 1).sqrt()),
    *(lambda x, y, r: x.tanh(), lambda x, y, r: x.sigmoid(), lambda x, y, r: x.relu()),
    *(lambda x, y, r: F.gelu(x), lambda x, y, r: F.silu(x), lambda x, y, r: F.softplus(x)),
    *(lambda x, y, r: F.leaky_relu(x), lambda x, y, r: F.elu(x), lambda x, y, r: x.erf()),
    *(lambda x, y, r: x.sin(), lambda x, y, r: x.atan2(y), lambda x, y, r: x.lerp(y, 0.3)),
    *(lambda x, y, r: x**2, lambda x, y, r: x**3, lambda x, y, r: x.clamp(-0.5, 0.5)),
    *(lambda x, y, r: x // 0.5, lambda x, y, r: x % 0.7, lambda x, y, r: x.long() + 1),
    *(lambda x, y, r: x.double().float(), lambda x, y, r: x.half().float()),
    *(lambda x, y, r: tinytorch.maximum(x, y), lambda x, y, r: tinytorch.where(x > y, x, y)),
    *(lambda x, y, r: (x > y).float(), lambda x, y, r: x.masked_fill(x > 0.5, r)),
    *(lambda x, y, r: x.sum(), lambda x, y, r: x.sum(-1), lambda x, y, r: x.mean(0)),
    *(lambda x, y, r: x.mean(-1, keepdim=True), lambda x, y, r: x.max(), lambda x, y, r: x.std()),
    *(lambda x, y, r: x.amax(-1), lambda x, y, r: x.max(-1)[0], lambda x, y, r: x.var(-1)),
    *(lambda x, y, r: x.norm(), lambda x, y, r: x.prod(-1), lambda x, y, r: x.logsumexp(-1)),
    *(lambda x, y, r: F.softmax(x, -1), lambda x, y, r: F.log_softmax(x, -1)),
    *(lambda x, y, r: F.layer_norm(x, x.shape[-1:]), lambda x, y, r: x.cumsum(-1)),
    *(lambda x, y, r: x.t(), lambda x, y, r: x.reshape(-1), lambda x, y, r: x.reshape(-1, 2)),
    *(lambda x, y, r: x[0], lambda x, y, r: x[..., 1:], lambda x, y, r: x[:, ::2]),
    *(lambda x, y, r: x.expand(2, *x.shape), lambda x, y, r: x.unsqueeze(-1)),
    *(lambda x, y, r: x.split(1)[0], lambda x, y, r: x.chunk(2, -1), lambda x, y, r: x.flip(0)),
    *(lambda x, y, r: x.roll(1, 0), lambda x, y, r: x.tril(), lambda x, y, r: x.repeat(2, 1)),
    *(lambda x, y, r: x @ y.t(), lambda x, y, r: x @ y, lambda x, y, r: tinytorch.cat([x, y])),
    *(lambda x, y, r: tinytorch.stack([x, x * 2]), lambda x, y, r: F.pad(x, (1, 1))),
    *(lambda x, y, r: tinytorch.einsum("ij,kj->ik", x, y), lambda x, y, r: x.sort(-1)[0]),
    *(lambda x, y, r: x.gather(-1, y.argmax(-1, keepdim=True)), lambda x, y, r: x.argmax(-1)),
    *(lambda x, y, r: tinytorch.arange(x.shape[-1]) * x, lambda x, y, r: x.detach() * 2),
    *(lambda x, y, r: tinytorch.zeros_like(x) + y, lambda x, y, r: tinytorch.addcmul(x, x, y)),
    *(lambda x, y, r: F.dropout(x, 0.3), lambda x, y, r: x + tinytorch.rand(x.shape)),
    in_place(lambda z, y, r: z.add_(y)),
    in_place(lambda z, y, r: z.mul_(r)),
    in_place(lambda z, y, r: z.__setitem__(0, r)),
    in_place(lambda z, y, r: z[..., 0].add_(1)),
    in_place(lambda z, y, r: z.t().mul_(2)),
    in_place(lambda z, y, r: z.__setitem__((slice(None), 0), z[:, 1])),
    in_place(lambda z, y, r: z[1:].zero_()),
    in_place(lambda z, y, r: z.exp_().clamp_(max=5)),
    in_place(lambda z, y, r: z.view(-1)[1:3].copy_(z.view(-1)[0:2])),
    in_place(lambda z, y, r: z.masked_fill_(z > 0, 1.5)),
    in_place(lambda z, y, r: z.__setitem__(z > 0.3, r)),
]


def random_program(seed: int) -> Callable:
    """A function of three tensors: (a scalar that depends on all results, the last result)."""
    rng = random.Random(seed)
    count = rng.randint(3, 14)
    lines = [(rng.choice(STATEMENTS), *(rng.random() for _ in range(3))) for _ in range(count)]

    def program(*inputs: tinytorch.Tensor) -> tuple:
        pool = list(inputs)
        for statement, first, second, r in lines:
            x, y = pool[int(first * len(pool))], pool[int(second * len(pool))]
            try:
                z = statement(x, y, r)
            except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
                continue
            pool.extend(z if isinstance(z, tuple) else [z])
        made = [x for x in pool[3:] if x.numel()] or [pool[0] * 1]
        squares = [(x.float() * x.float()).clamp(max=100.0).mean() for x in made]
        return sum(squares[1:], squares[0]), made[-1]

    return program


def outcome(program: Callable, seed: int, requires_grad: bool) -> Any:
    """Values and gradients of a run, or the type of its error."""
    rng = np.random.default_rng(seed)
    shapes = [(4, 4)] * 3 if seed % 3 else [(2, 6), (2, 6), (1, 6)]
    inputs = [tinytorch.tensor(rng.standard_normal(s).astype(np.float32)) for s in shapes]
    inputs = [x.requires_grad_(requires_grad) for x in inputs]
    tinytorch.manual_seed(seed)
    try:
        loss, last = program(*inputs)
        found = [loss.detach().numpy(), last.detach().numpy(), np.asarray(last.requires_grad)]
        if loss.requires_grad:
            grads = tinytorch.autograd.grad(loss, inputs, allow_unused=True)
            found += [np.zeros(x.shape) if g is None else g.numpy() for x, g in zip(inputs, grads)]  # noqa: B905
    except RuntimeError as error:
        return type(error)
    return found


def alike(a: Any, b: Any) -> bool:
    """Whether two outcomes are the same to rounding."""
    if isinstance(a, type) or isinstance(b, type):
        return a is b
    return len(a) == len(b) and all(
        x.shape == y.shape and np.allclose(x, y, rtol=2e-4, atol=2e-5, equal_nan=True)
        for x, y in zip(a, b, strict=True)
    )


def differences(seed: int, backend: str) -> tuple[list[str], int]:
    """(what is different between eager and compiled for program `seed`, how many graphs it has)."""
    program, wrong = random_program(seed), []
    compiled = tinytorch.compile(program, backend=backend)
    for requires_grad in (True, False):
        expected = outcome(program, seed, requires_grad)
        for run in ("first", "second"):
            if not alike(expected, outcome(compiled, seed, requires_grad)):
                wrong.append(f"program {seed}, {requires_grad=}, {run} run")
    return wrong, compiled.compiled.count


def main() -> None:
    first, last, backend = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    wrong, graphs = [], 0
    for seed in range(first, last):
        found, count = differences(seed, backend)
        wrong, graphs = wrong + found, graphs + count
    print("\n".join(wrong))
    print(f"{last - first} programs, {graphs} graphs, {len(wrong)} runs differ")


if __name__ == "__main__":
    main()

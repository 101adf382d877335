"""What is kept for the backward, and what it computes again."""

import numpy as np

import tinytorch as tt
from tests.compiler.compare import compare, halves
from tinytorch import nn
from tinytorch.nn import functional as F


def kept(captured):
    """The types and shapes of what the forward keeps, but for its inputs."""
    nodes = halves(captured)[0].outputs[captured.count + len(captured.written) :]
    return [f"{node.dtype}{list(node.shape)}" for node in nodes if node.op not in ("input", "call")]


def test_a_long_chain_keeps_its_input_alone():
    def chain(x):
        for number in range(20):
            x = x * x * 0.5 + number
        return x

    assert kept(compare(chain, tt.randn(30).requires_grad_())) == []


def test_what_takes_long_is_kept():
    captured = compare(lambda x: x.erf().sqrt() * x.sin().exp(), tt.rand(30).requires_grad_())
    assert {"erf", "sin"}.isdisjoint(node.op for node in halves(captured)[1].nodes)
    assert len(kept(captured)) == 2


def test_of_random_numbers_a_byte_is_kept():
    captured = compare(lambda x: F.dropout(x * 2, 0.5), tt.randn(30).requires_grad_())
    assert kept(captured) == ["bool[30]"]


def test_a_network():
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    x = tt.randn(3, 2, 10, 10)
    captured = compare(module, x, uses=[*module.parameters(), *module.buffers()])
    large = [text for text in kept(captured) if "float32[3, 4, 8, 8]" in text]
    assert len(large) == 1  # what the convolution gave; the rest follows from it
    assert "uint8[3, 4, 4, 4]" in kept(captured)


def test_effects_happen_once():
    def function(x):
        return (F.dropout(x, 0.5) * tt.rand(30) * x.cumsum(0)).sin()

    captured = compare(function, tt.randn(30).requires_grad_())
    assert not {"random", "call"} & {node.op for node in halves(captured)[1].nodes}


def test_a_gradient_that_is_a_value_of_the_forward():
    compare(lambda x, y: x.exp() * y, tt.randn(3).requires_grad_(), tt.randn(3).requires_grad_())
    compare(lambda x, y: x + y, tt.randn(3).requires_grad_(), tt.randn(3).requires_grad_())
    compare(lambda x: x * np.pi, tt.randn(3).requires_grad_())

"""The kernels that the compiler writes in CUDA, as Python on the simulator, against NumPy."""

import numpy as np
import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch.compiler.capture import capture
from tinytorch.compiler.cuda_code import cuda_source, launch_of
from tinytorch.compiler.fuse import fuse
from tinytorch.compiler.simplify import simplify
from tinytorch.kernels.simulator import launch
from tinytorch.kernels.translation import kernels_of, python_of

FUNCTIONS = {
    "elements": (lambda x: F.relu(x * 2 + 1), (5, 70)),
    "rows": (lambda x: F.softmax(x, 1), (3, 300)),
    "columns": (lambda x: x.exp() - x.sum(0), (30, 70)),
    "smallest": (lambda x: x.amin(1), (4, 40)),
    "quotients": (lambda x: x // 0.3, (7,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_generated_kernels_give_what_numpy_gives(name):
    function, shape = FUNCTIONS[name]
    tinytorch.manual_seed(0)
    x = tinytorch.randn(*shape)
    graph = simplify(capture(function, (x,), {}, [x]).graph)
    kernels, values = fuse(graph), {graph.inputs[0]: x.numpy()}
    functions = kernels_of(cuda_source(kernels))
    for kernel in kernels:
        values |= {node: np.empty(node.shape, node.dtype) for node in kernel.outputs}
        arrays = [values[node].ravel() for node in (*kernel.inputs, *kernel.outputs)]
        launch(functions[kernel.name], *launch_of(kernel), *arrays)
    np.testing.assert_allclose(values[graph.outputs[0]], function(x).numpy(), rtol=1e-5, atol=1e-6)


def test_what_stands_before_the_first_kernel_is_left_out():
    text = (
        '__device__ inline float f(float x) { return x; }\nextern "C" __global__ void k(int x) {\n'
    )
    assert python_of(text).strip() == "def k(t, x):"

"""autocast gives PyTorch's result types, operation by operation and module by module; GradScaler
takes the same course. PyTorch's lists for CUDA are asked through fake tensors, without a GPU."""

import warnings

import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytest.importorskip("ml_dtypes", reason="bfloat16 needs ml_dtypes")

from tests.parity import samples  # noqa: E402  (it imports PyTorch)
from tests.parity import test_modules as modules  # noqa: E402

OPERATIONS = {
    op.name: op
    for op in reversed(samples.op_db)
    if samples.find(op.name) and not op.variant_test_name and op.name not in samples.RANDOM
}
# Where a type differs, and why: casts are chosen by Function, and these share one or have several.
DIFFERENT = {
    "dot": "the product of two vectors is matmul's here, which is lowered",
    "vdot": "as dot",
    "mv": "as dot",
    "addmm": "a product and a sum: the input keeps its type",
    "addmv": "as addmm",
    "addbmm": "as addmm",
    "baddbmm": "as addmm",
    "tensordot": "its product is matmul's, also where PyTorch only sums",
    "to_sparse": "a sparse tensor is none of the operation's tests",
    "trace": "a diagonal and a sum",
    "nn.functional.prelu": "where(x > 0, x, w * x): it has no product",
    "nn.functional.l1_loss": "abs, and a mean",
    "nn.functional.cosine_embedding_loss": "made of several Functions, as the next two",
    "nn.functional.margin_ranking_loss": "see above",
    "nn.functional.triplet_margin_loss": "see above",
    "nn.functional.kl_div": "a mean of products",
    "nn.functional.adaptive_avg_pool3d": "as in other dimensions, which keep their type",
    "nn.functional.adaptive_max_pool3d": "as in other dimensions, which keep their type",
    "nn.functional.cross_entropy": "with smoothing or probabilities it has several Functions",
    "nn.functional.scaled_dot_product_attention": "computed in float32, in its inputs' type",
    "nn.functional.grid_sample": "several Functions, in its inputs' type",
    "nn.functional.binary_cross_entropy_with_logits": "with pos_weight it has several Functions",
}


def flat(values):
    """The names of the types in a result, in order."""
    if isinstance(values, (tuple, list)):
        return [name for value in values for name in flat(value)]
    return [str(values.dtype).partition(".")[2]] if hasattr(values, "dtype") else []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - DIFFERENT))
def test_types_of_operations(name, dtype):
    op, function = OPERATIONS[name], samples.find(name)
    if dtype not in op.dtypes:
        pytest.skip("PyTorch does not have this type")
    for sample in samples.some(op.sample_inputs("cpu", dtype), 2):
        try:
            args, kwargs, _ = samples.carry_sample(sample)
            with torch.autocast("cpu", torch.bfloat16):
                theirs = flat(op(sample.input, *sample.args, **sample.kwargs))
        except (samples.Unsupported, RuntimeError, IndexError):
            continue
        if kwargs.get("sparse"):
            continue
        with tinytorch.autocast("cpu", tinytorch.bfloat16):
            ours = flat(function(*args, **kwargs))
        assert ours == theirs, sample


# PReLU has no product; the loops of LSTM and RNN run in float32 on arrays, as those of GRU.
@pytest.mark.parametrize("name", sorted(modules.INFOS.keys() - {"PReLU", "LSTM", "RNN"}))
def test_types_of_modules(name):
    info = modules.INFOS[name]
    for sample in list(modules.samples(name, info, torch.float32))[::2]:
        made, called = sample.constructor_input, sample.forward_input
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = info.module_cls(*made.args, **made.kwargs)
            ours = getattr(tinytorch.nn, name)(
                *modules.carry(made.args), **modules.carry(made.kwargs)
            )
            with torch.autocast("cpu", torch.bfloat16):
                expected = flat(theirs(*called.args, **called.kwargs))
            args, kwargs = modules.carry(called.args), modules.carry(called.kwargs)
            with tinytorch.autocast("cpu", tinytorch.bfloat16):
                found = ours(*args, **kwargs)
        assert flat(found) == expected, sample


# One call of each operation of PyTorch's lists for CUDA that tinytorch has, on square matrices.
CALLS = """matmul(x,x) mm(x,x) einsum('ij,jk->ik',x,x)
nn.functional.linear(x,x)

acos(x) asin(x) cosh(x) exp(x)
expm1(x) log(x) log10(x) log2(x) log1p(x) reciprocal(x) rsqrt(x) sinh(x) tan(x) pow(x,2.5)
nn.functional.softplus(x) nn.functional.layer_norm(x,(4,)) nn.functional.group_norm(x,2)
nn.functional.mse_loss(x,x) nn.functional.huber_loss(x,x) nn.functional.smooth_l1_loss(x,x)
nn.functional.binary_cross_entropy_with_logits(x,x) logsumexp(x,0) prod(x) sum(x) sum(x,0)
softmax(x,0) log_softmax(x,0) cumsum(x,0) norm(x) sin(x) tanh(x) sigmoid(x) relu(x) sqrt(x) abs(x)
mean(x) add(x,x) mul(x,x) div(x,x) max(x) maximum(x,x) cat([x,x]) stack([x,x]) atan2(x,x) cos(x)
nn.functional.gelu(x) nn.functional.silu(x)
nn.functional.nll_loss(x,i) nn.functional.cross_entropy(x,i)
nn.functional.embedding(i,x) var(x) std(x) atan(x) sign(x) floor(x)""".split()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("call", CALLS)
def test_types_on_other_devices(call, dtype, strict_device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    ours = tinytorch.rand(4, 4).to(getattr(tinytorch, dtype)).to(strict_device)
    index = tinytorch.arange(4).to(strict_device)
    with tinytorch.autocast(strict_device, tinytorch.float16):
        found = flat(eval(f"tinytorch.{call}", {"tinytorch": tinytorch, "x": ours, "i": index}))
    before = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)  # torch.autocast refuses where there is no GPU
    try:
        with FakeTensorMode():
            x = torch.empty(4, 4, device="cuda", dtype=getattr(torch, dtype))
            i = torch.empty(4, device="cuda", dtype=torch.int64)
            expected = flat(eval(f"torch.{call}", {"torch": torch, "x": x, "i": i}))
    finally:
        torch.set_autocast_enabled("cuda", before)
    assert found == expected


def test_course_of_the_scale():
    """Random gradients, some of them inf or nan: the same scales, parameters and states."""
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (
        library.amp.GradScaler("cpu", 2.0**10, 3.0, 0.25, 3) for library in (tinytorch, torch)
    )
    w, w_ = tinytorch.zeros(3).requires_grad_(), torch.zeros(3, requires_grad=True)
    optimizer, optimizer_ = tinytorch.optim.SGD([w], lr=0.5), torch.optim.SGD([w_], lr=0.5)
    for number in range(60):
        gradient = torch.randn(3, generator=generator)
        if torch.rand(1, generator=generator) < 0.2:
            gradient[number % 3] = float("inf") if number % 2 else float("nan")
        ours.scale((w * tinytorch.tensor(gradient.tolist())).sum()).backward()
        theirs.scale((w_ * gradient).sum()).backward()
        for scaler, optimizer__ in ((ours, optimizer), (theirs, optimizer_)):
            if number % 3 == 0:
                scaler.unscale_(optimizer__)
            scaler.step(optimizer__)
            scaler.update(7.0 if number == 30 else None)
            optimizer__.zero_grad()
        assert ours.state_dict() == theirs.state_dict()
        assert w.tolist() == pytest.approx(w_.tolist(), rel=1e-6)
    assert len({ours.get_scale(), 2.0**10}) == 2

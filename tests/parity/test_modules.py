"""Every module that tinytorch has, on the inputs of PyTorch's own table of modules: the same state,
copied by state_dict, gives the same outputs and gradients, and what is refused there is refused."""

import warnings

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import module_db

INFOS = {
    info.module_cls.__name__: info
    for info in module_db
    if hasattr(tinytorch.nn, info.module_cls.__name__)
}


def carry_layer(layer):
    """A layer of PyTorch's Transformer as one of tinytorch, which is given to an encoder."""
    return tinytorch.nn.TransformerEncoderLayer(
        layer.linear1.in_features,
        layer.self_attn.num_heads,
        layer.linear1.out_features,
        layer.dropout.p,
        carry(layer.activation),
        layer.norm1.eps,
        layer.self_attn.batch_first,
        layer.norm_first,
        layer.linear1.bias is not None,
    )


def carry(value):
    """A tensor of PyTorch as one of tinytorch; other values, also in containers, as they are."""
    if isinstance(value, torch.Tensor):
        array = value.detach().numpy().copy()
        return tinytorch.tensor(array, requires_grad=value.requires_grad)
    if isinstance(value, (tuple, list)):
        return type(value)(carry(item) for item in value)
    if isinstance(value, dict):
        return {name: carry(item) for name, item in value.items() if name != "device"}
    if isinstance(value, torch.nn.TransformerEncoderLayer):
        return carry_layer(value)
    if callable(value) and hasattr(torch.nn.functional, getattr(value, "__name__", "")):
        return getattr(tinytorch.nn.functional, value.__name__)
    if isinstance(value, torch.dtype):
        return getattr(tinytorch, str(value).removeprefix("torch."))
    return value


def leaf(value):
    """A tensor that keeps its gradient; other values as they are."""
    if isinstance(value, torch.Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    return type(value)(map(leaf, value)) if isinstance(value, (tuple, list)) else value


def assert_close(ours, theirs, what, loose=1):
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch."), what
    ours, theirs = ours.detach().numpy(), theirs.detach().numpy()
    # A sum whose terms cancel has errors in proportion to the terms, not to what is left.
    atol = loose * 1e-6 * max(1, abs(theirs).max(initial=0))
    np.testing.assert_allclose(ours, theirs, rtol=loose * 1e-5, atol=atol, err_msg=what)


def flat(values):
    """The tensors in a value, in order."""
    if isinstance(values, (tuple, list)):
        return [tensor for value in values for tensor in flat(value)]
    return [] if values is None else [values]


def samples(name, info, dtype):
    torch.manual_seed(0)
    found = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=True
    )
    # Of the many combinations of masks and options of a Transformer every third.
    for sample in list(found)[:: 3 if name.startswith("Transformer") else 1]:
        made = sample.constructor_input
        if any(isinstance(v, complex) for v in made.kwargs) or made.kwargs.get("proj_size"):
            continue  # neither complex numbers nor projections
        yield sample


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", sorted(INFOS))
def test_outputs_and_gradients(name, dtype):
    info = INFOS[name]
    count = 0
    # Rounding adds up in chains of products: their float64 samples are compared strictly.
    chain = name.startswith(("Transformer", "Multihead")) and dtype is torch.float32
    loose = 30 if chain else 1
    for sample in samples(name, info, dtype):
        made, called = sample.constructor_input, sample.forward_input
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = info.module_cls(*made.args, **made.kwargs).to(dtype)
            ours = getattr(tinytorch.nn, name)(*carry(made.args), **carry(made.kwargs))
        ours.to(carry(dtype))
        if name.startswith("Lazy"):  # it has its parameters after a first call
            assert repr(ours) == repr(theirs)
            theirs(*called.args)
            ours(*carry(called.args))
        ours.load_state_dict({k: carry(v.detach()) for k, v in theirs.state_dict().items()})
        assert repr(ours) == repr(theirs)
        given = [leaf(value) for value in called.args]
        named = {key: leaf(value) for key, value in called.kwargs.items()}
        inputs, ours_named = carry(given), carry(named)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, expected = flat(ours(*inputs, **ours_named)), flat(theirs(*given, **named))
        what = f"{made} {called} {sample.desc}"
        losses = []
        for y, y_ in zip(found, expected, strict=True):
            assert_close(y, y_, what, loose)
            if not y_.is_floating_point():
                continue  # places, as of max pooling
            weights = torch.randn(y_.shape, dtype=y_.dtype)
            losses.append(((y * carry(weights)).sum(), (y_ * weights).sum()))
        for loss in map(sum, zip(*losses, strict=True)):
            loss.backward()
        inputs, given = [*inputs, *ours_named.values()], [*given, *named.values()]
        for mine, theirs_ in zip(flat(inputs), flat(given), strict=True):
            if isinstance(theirs_, torch.Tensor) and theirs_.grad is not None:
                assert_close(mine.grad, theirs_.grad, "gradient of an input: " + what, loose)
        for key, param in theirs.named_parameters():
            assert_close(
                ours.get_parameter(key).grad, param.grad, f"gradient of {key}: {what}", loose
            )
        count += 1
    assert count


@pytest.mark.parametrize(
    "name", sorted(n for n, info in INFOS.items() if info.module_error_inputs_func)
)
def test_errors(name):
    info = INFOS[name]
    for error in info.module_error_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=True
    ):
        made = error.module_error_input.constructor_input
        called = error.module_error_input.forward_input
        if any(isinstance(value, complex) for value in made.kwargs.values()):
            continue  # there are no complex numbers here
        with pytest.raises(error.error_type):
            module = getattr(tinytorch.nn, name)(*carry(made.args), **carry(made.kwargs))
            module(*carry(called.args))


def test_a_state_dict_goes_both_ways():
    theirs = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.ModuleDict({"out": torch.nn.Linear(5, 2)})
    )
    ours = tinytorch.nn.Sequential(
        tinytorch.nn.Linear(4, 5),
        tinytorch.nn.ReLU(),
        tinytorch.nn.ModuleDict({"out": tinytorch.nn.Linear(5, 2)}),
    )
    state = {key: carry(value) for key, value in theirs.state_dict().items()}
    assert str(ours.load_state_dict(state)) == "<All keys matched successfully>"
    back = {key: torch.from_numpy(value.numpy() + 1) for key, value in ours.state_dict().items()}
    assert str(theirs.load_state_dict(back)) == "<All keys matched successfully>"
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(value.numpy(), ours.state_dict()[key].numpy() + 1)


def test_ten_steps_of_training():
    def network(t):
        return t.nn.Sequential(
            t.nn.Linear(20, 32),
            t.nn.GELU(),
            t.nn.Linear(32, 16),
            t.nn.LeakyReLU(0.1),
            t.nn.Linear(16, 5),
        )

    torch.manual_seed(0)
    theirs, ours = network(torch), network(tinytorch)
    ours.load_state_dict({key: carry(value) for key, value in theirs.state_dict().items()})
    x, target = torch.randn(64, 20), torch.randint(0, 5, (64,))
    for t, net, inputs in ((torch, theirs, (x, target)), (tinytorch, ours, carry((x, target)))):
        loss = t.nn.CrossEntropyLoss(label_smoothing=0.1)
        for _ in range(10):
            net.zero_grad()
            loss(net(inputs[0]), inputs[1]).backward()
            t.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            with t.no_grad():
                for param in net.parameters():
                    param.sub_(param.grad, alpha=0.3)
    for key, param in theirs.named_parameters():
        assert_close(ours.get_parameter(key), param, key)


REFUSED = [
    lambda t: t.nn.Module().register_parameter("a.b", None),
    lambda t: t.nn.Module().register_parameter("", None),
    lambda t: t.nn.Module().register_parameter("training", None),
    lambda t: t.nn.Module().register_parameter(1, None),
    lambda t: t.nn.Module().register_parameter("w", t.ones(2)),
    lambda t: t.nn.Module().register_buffer("w", [1.0]),
    lambda t: t.nn.Module().add_module("w", t.ones(2)),
    lambda t: t.nn.Module().train("yes"),
    lambda t: t.nn.Module()(1),
    lambda t: t.nn.Module().nothing,
    lambda t: t.nn.Module().get_parameter("nothing"),
    lambda t: t.nn.Module().load_state_dict([1]),
    lambda t: t.nn.Linear(2, 2).to(t.int64),
    lambda t: t.nn.Linear(2, 2).load_state_dict({}),
    lambda t: t.nn.Linear(2, 2)(t.ones(3)),
    lambda t: t.nn.Linear(2, 2)(t.ones(3, 3)),
    lambda t: t.nn.Linear(2, 2)(t.ones(2, dtype=t.float64)),
    lambda t: t.nn.Linear(2, 2)(t.ones(2, dtype=t.int64)),
    lambda t: t.nn.Parameter(t.ones(2, dtype=t.int64)),
    lambda t: t.nn.Parameter([1.0]),
    lambda t: setattr(t.nn.Linear(2, 2), "weight", t.ones(2, 2)),
    lambda t: t.nn.Sequential(t.nn.Identity())[1],
    lambda t: t.nn.Sequential(3),
    lambda t: t.nn.ModuleList([3]),
    lambda t: t.nn.ModuleDict({"a": 3}),
    lambda t: t.nn.ModuleDict({})["a"],
    lambda t: t.nn.Dropout(1.5),
    lambda t: t.nn.functional.dropout(t.ones(2), -0.5),
    lambda t: t.nn.LeakyReLU(slope=3),
    lambda t: t.nn.GELU("erf")(t.ones(2)),
    lambda t: t.nn.functional.leaky_relu(t.ones(2, dtype=t.int64)),
    lambda t: t.nn.MSELoss(reduction="max")(t.ones(2), t.ones(2)),
    lambda t: t.nn.BCELoss()(t.ones(2), t.ones(3)),
    lambda t: t.nn.BCELoss()(t.ones(2) * 2, t.ones(2)),
    lambda t: t.nn.BCEWithLogitsLoss()(t.ones(2), t.ones(3)),
    lambda t: t.nn.CrossEntropyLoss()(t.ones(2, 3), t.tensor([0, 3])),
    lambda t: t.nn.CrossEntropyLoss()(t.ones(2, 3), t.tensor([0, -1])),
    lambda t: t.nn.NLLLoss()(t.ones(2, 3), t.tensor([0, 3])),
    lambda t: t.nn.functional.one_hot(t.tensor([3]), 3),
    lambda t: t.nn.functional.one_hot(t.tensor([-1]), 3),
    lambda t: t.nn.functional.one_hot(t.tensor([1.0])),
    lambda t: t.nn.init.calculate_gain("cube"),
    lambda t: t.nn.init.xavier_uniform_(t.ones(2)),
    lambda t: t.nn.init.kaiming_normal_(t.ones(2, 2), mode="fan"),
    lambda t: t.nn.init.eye_(t.ones(2)),
    lambda t: t.nn.init.orthogonal_(t.ones(2)),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused_with_the_same_error(number):
    with pytest.raises(Exception) as theirs:
        REFUSED[number](torch)
    with pytest.raises(theirs.type):
        REFUSED[number](tinytorch)

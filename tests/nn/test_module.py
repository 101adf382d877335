"""Modules: what is registered, how it is found, moved, saved, loaded, shown and watched."""

import copy
import gc
import pickle
from collections import OrderedDict

import pytest

import tinytorch
from tinytorch import nn, tensor


class Scale(nn.Module):
    """Two parameters of two kinds of buffer: enough to see what each method takes."""

    def __init__(self, value=2.0):
        super().__init__()
        self.factor = nn.Parameter(tensor([value]))
        self.register_parameter("shift", None)
        self.register_buffer("seen", tensor(0))
        self.register_buffer("scratch", tensor([1.0]), persistent=False)

    def forward(self, x):
        return x * self.factor


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Scale(2.0)
        self.second = nn.Sequential(Scale(3.0), nn.Identity())

    def forward(self, x):
        return self.second(self.first(x))


def test_names_in_the_order_of_registration():
    net = Outer()
    assert [n for n, _ in net.named_parameters()] == ["first.factor", "second.0.factor"]
    assert [n for n, _ in net.named_parameters("net")][0] == "net.first.factor"
    assert list(net.named_parameters(recurse=False)) == []
    assert [n for n, _ in net.named_modules()] == ["", "first", "second", "second.0", "second.1"]
    assert [n for n, _ in net.named_children()] == ["first", "second"]
    assert list(net.children()) == [net.first, net.second]
    assert len(list(net.buffers())) == 4 and len(list(net.modules())) == 5
    assert net.get_submodule("second.0") is net.second[0] and net.get_submodule("") is net
    assert net.get_parameter("second.0.factor") is net.second[0].factor
    assert net.get_buffer("first.seen") is net.first.seen
    with pytest.raises(AttributeError, match="no module `third`"):
        net.get_submodule("third")


def test_a_plain_tensor_is_not_registered():
    net = nn.Module()
    net.weight = tensor([1.0], requires_grad=True)
    assert list(net.parameters()) == [] and net.weight.item() == 1.0
    net.weight = nn.Parameter(tensor([2.0]))
    assert [n for n, _ in net.named_parameters()] == ["weight"]
    with pytest.raises(TypeError, match="as parameter 'weight'"):
        net.weight = tensor([3.0])
    net.weight = None
    assert list(net.parameters()) == [] and net.weight is None
    del net.weight
    assert not hasattr(net, "weight")


def test_attributes_change_their_kind():
    net = nn.Module()
    net.part = nn.Identity()
    net.part = nn.Parameter(tensor([1.0]))
    assert list(net.children()) == [] and len(list(net.parameters())) == 1
    net.register_buffer("mean", tensor([0.0]))
    net.mean = tensor([5.0])  # still a buffer
    assert dict(net.named_buffers())["mean"].item() == 5.0
    with pytest.raises(AttributeError, match="before Module"):
        type("Early", (nn.Module,), {"__init__": lambda s: setattr(s, "x", nn.Identity())})()


def test_tied_parameters_come_once():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    assert len(list(net.parameters())) == 3
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    again = copy.deepcopy(net)
    assert again[0].weight is again[1].weight is not net[0].weight
    again = pickle.loads(pickle.dumps(net))
    assert again[0].weight is again[1].weight


def test_done_to_all_parts():
    net = Outer()
    seen = []
    assert net.apply(seen.append) is net
    assert seen[0] is net.first and seen[-1] is net
    assert not net.eval().second[0].training and net.train().second[0].training
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    net.requires_grad_()
    net(tensor([1.0])).sum().backward()
    net.zero_grad(set_to_none=False)
    assert [p.grad.item() for p in net.parameters()] == [0.0, 0.0]
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_to_another_type_or_device(device):
    net = Outer()
    factor = net.first.factor
    net(tensor([1.0])).sum().backward()
    assert net.to(device).double() is net
    assert net.first.factor is factor  # an optimizer that has it goes on working
    assert (factor.dtype, factor.device) == (tinytorch.float64, tinytorch.device(device))
    assert (factor.grad.dtype, factor.grad.device) == (tinytorch.float64, tinytorch.device(device))
    assert (net.first.seen.dtype, net.first.seen.device) == (
        tinytorch.int64,
        tinytorch.device(device),
    )
    net.float()
    y = net(tensor([1.0], device=device))
    assert (y.item(), y.dtype) == (6.0, tinytorch.float32)
    assert net.to(tensor([1.0]).half()).first.factor.dtype is tinytorch.float16
    assert net.cpu().first.factor.device.type == "cpu"
    with pytest.raises(TypeError, match="only accepts floating point"):
        net.to(tinytorch.int64)


def test_state_dict():
    net = Outer()
    state = net.state_dict()
    assert list(state) == ["first.factor", "first.seen", "second.0.factor", "second.0.seen"]
    assert list(net.state_dict(prefix="net."))[0] == "net.first.factor"
    assert not state["first.factor"].requires_grad
    assert net.state_dict(keep_vars=True)["first.factor"] is net.first.factor
    state = {key: value.clone() + 1 for key, value in state.items()}
    assert str(net.load_state_dict(state)) == "<All keys matched successfully>"
    assert net.first.factor.item() == 3.0 and net.second[0].seen.item() == 1
    state["first.factor"][0] = 7.0
    assert net.first.factor.item() == 3.0
    net.second.requires_grad_(False)
    net.load_state_dict(state, assign=True)
    assert not net.second[0].factor.requires_grad and net.first.factor.requires_grad
    assert net.first.factor.item() == 7.0 and isinstance(net.first.factor, nn.Parameter)


def test_load_state_dict_tells_all_that_is_wrong():
    net, state = Outer(), Outer().state_dict()
    del state["first.factor"]
    state["third"] = tensor([1.0])
    assert net.load_state_dict(state, strict=False) == (["first.factor"], ["third"])
    state["first.seen"] = tensor([1, 2])
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict(state)
    assert str(error.value) == (
        "Error(s) in loading state_dict for Outer:\n"
        '\tMissing key(s) in state_dict: "first.factor". \n'
        '\tUnexpected key(s) in state_dict: "third". \n'
        "\tsize mismatch for first.seen: copying a param with shape tinytorch.Size([2]) from "
        "checkpoint, the shape in current model is tinytorch.Size([])."
    )


def test_text():
    net = nn.Sequential(nn.Linear(2, 3), nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Identity()]))
    assert repr(net) == (
        "Sequential(\n"
        "  (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (1): ModuleList(\n"
        "    (0-1): 2 x ReLU()\n"
        "    (2): Identity()\n"
        "  )\n"
        ")"
    )
    assert repr(nn.Parameter(tensor([1.0]))) == (
        "Parameter containing:\ntensor([1.], requires_grad=True)"
    )


def test_forward_hooks():
    net, log = Outer(), []
    handles = [
        net.first.register_forward_pre_hook(lambda m, args: log.append(args[0].item())),
        net.first.register_forward_pre_hook(lambda m, args: args[0] + 1),
        net.first.register_forward_hook(lambda m, args, y: log.append((args[0].item(), y.item()))),
        net.first.register_forward_hook(lambda m, args, y: y * 10),
    ]
    assert net(tensor([1.0])).item() == 120.0
    assert log == [1.0, (2.0, 4.0)]
    for handle in handles:
        handle.remove()
    assert net(tensor([1.0])).item() == 6.0 and len(log) == 2


def test_backward_hooks(device):
    net, log = Outer().to(device), []

    def look(module, grad_input, grad_output):
        given = (*grad_input, *grad_output)
        assert all(g is None or isinstance(g, tinytorch.Tensor) for g in given)
        log.append([None if g is None else g.item() for g in given])

    with net.second.register_full_backward_hook(look), net.first.register_full_backward_hook(look):
        x = tensor([1.0], device=device, requires_grad=True)
        net(x).backward()
        assert log == [[3.0, 1.0], [6.0, 3.0]] and x.grad.item() == 6.0
        log.clear()
        net(tensor([1.0], device=device)).backward()  # nobody wants the gradient of the input
        assert log == [[3.0, 1.0], [None, 3.0]]
        with tinytorch.no_grad():
            net(x)
    with net.second.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,)):
        x.grad = None
        net(x).backward()
        assert x.grad.item() == 60.0
    log.clear()
    net(x).backward()
    assert log == []


def test_backward_hook_on_several_inputs_and_outputs():
    class Swap(nn.Module):
        def forward(self, a, word, b):
            return b * 2, a * 3

    net, log = Swap(), []
    net.register_full_backward_hook(lambda m, gi, go: log.append((gi, go)))
    a, b = tensor([1.0], requires_grad=True), tensor([1.0], requires_grad=True)
    y, z = net(a, "word", b)
    (y + z * 10).backward()
    (grad_input, grad_output) = log[0]
    assert [g.item() for g in grad_output] == [1.0, 10.0]
    assert (grad_input[0].item(), grad_input[1], grad_input[2].item()) == (30.0, None, 2.0)
    assert (a.grad.item(), b.grad.item()) == (30.0, 2.0)


def test_a_graph_with_hooks_dies_at_once():
    net = Outer()
    net.first.register_full_backward_hook(lambda m, gi, go: None)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            y = net(tensor([1.0]))
            y.backward()
            del y
            assert gc.collect() == 0
    finally:
        gc.enable()


# Containers.


def test_sequential():
    net = nn.Sequential(OrderedDict(first=Scale(2.0), second=Scale(3.0)))
    assert net.first is net[0] is net[-2] and net(tensor([1.0])).item() == 6.0
    assert list(net[1:].state_dict())[0] == "second.factor"
    net = nn.Sequential(Scale(2.0)).append(Scale(5.0))
    net.insert(1, Scale(3.0))
    assert net(tensor([1.0])).item() == 30.0 and len(net) == 3
    del net[0]
    assert [n for n, _ in net.named_children()] == ["0", "1"] and net(tensor([1.0])).item() == 15.0
    net[1] = Scale(7.0)
    assert net(tensor([1.0])).item() == 21.0 and net.pop()(tensor([1.0])).item() == 7.0
    with pytest.raises(IndexError, match="out of range"):
        net[5]


def test_module_list():
    parts = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    assert len(list(parts.parameters())) == 6 and isinstance(parts[1:], nn.ModuleList)
    assert [n for n, _ in parts[1:].named_children()] == ["0", "1"]
    parts += [nn.ReLU()]
    assert len(parts) == 4 and parts[3] in parts
    with pytest.raises(NotImplementedError):
        parts(1)
    with pytest.raises(TypeError):
        parts.append(3)


def test_module_dict():
    parts = nn.ModuleDict({"relu": nn.ReLU(), "linear": nn.Linear(2, 2)})
    parts["tanh"] = nn.Tanh()
    assert list(parts) == ["relu", "linear", "tanh"] == list(parts.keys()) and "relu" in parts
    assert len(list(parts.parameters())) == 2
    parts.pop("linear")
    assert len(parts) == 2 and hash(parts) is not None and parts == parts
    with pytest.raises(KeyError):
        parts["gelu"]


def test_hooks_with_kwargs_and_in_front():
    class Scaled(nn.Module):
        def forward(self, x, scale=1.0):
            return x * scale

    net, log, x = Scaled(), [], tensor([2.0], requires_grad=True)
    net.register_forward_pre_hook(lambda m, a, k: (a, {"scale": k["scale"] + 1}), with_kwargs=True)
    net.register_forward_hook(lambda m, a, k, y: log.append(k), with_kwargs=True)
    net.register_forward_hook(lambda m, a, y: log.append("first"), prepend=True)
    net.register_full_backward_pre_hook(lambda m, go: (go[0] * 10,))
    net(x, scale=2.0).backward()
    assert log == ["first", {"scale": 3.0}] and x.grad.item() == 30.0


@pytest.mark.parametrize("answer", [lambda g: (g, g), lambda g: ()])
def test_a_backward_hook_cannot_change_the_number_of_gradients(answer):
    net, x = nn.Tanh(), tensor([1.0], requires_grad=True)
    with net.register_full_backward_hook(lambda m, gi, go: answer(gi[0])):
        with pytest.raises(RuntimeError, match="gradients"):
            net(x).backward()


def test_each_part_is_asked_to_train():
    class Frozen(nn.ReLU):
        def train(self, mode=True):
            return super().train(False)

    net = nn.Sequential(Frozen(), nn.ReLU()).train()
    assert [part.training for part in net.modules()] == [True, False, True]


def test_copies_have_no_gradients_and_share_what_was_shared():
    net = nn.Sequential(nn.Linear(2, 2))
    net.again = net[0]
    net(tinytorch.ones(1, 2)).sum().backward()
    other = copy.deepcopy(net)
    assert other.again is other[0] and other[0].weight.grad is None
    assert type(other[0].weight) is nn.Parameter and net[0].weight.grad is not None


def test_a_missing_attribute_cannot_be_deleted():
    net = nn.Linear(2, 2)
    del net.bias
    assert [name for name, _ in net.named_parameters()] == ["weight"]
    with pytest.raises(AttributeError):
        del net.nothing
    assert "weight" in dir(net) and "bias" not in dir(net)


def test_load_state_dict_with_the_tensors_themselves():
    net, weight, bias = nn.Linear(1, 2), tinytorch.ones(2, 1), nn.Parameter(tinytorch.zeros(2))
    net.weight.requires_grad_(False)
    net.load_state_dict({"weight": weight, "bias": bias}, assign=True)
    assert net.bias is bias and net.weight.data_ptr() == weight.data_ptr()
    assert isinstance(net.weight, nn.Parameter) and not net.weight.requires_grad


def test_lists_are_added():
    row = nn.Sequential(nn.ReLU()) + nn.Sequential(nn.Tanh())
    assert type(row) is nn.Sequential and [type(part) for part in row] == [nn.ReLU, nn.Tanh]
    assert len(nn.ModuleList([nn.ReLU()]) + [nn.Tanh()]) == 2

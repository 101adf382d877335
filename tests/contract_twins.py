"""Broken twins: plausible mistakes in the simple forms of stages 7 to 10 (the contract, rule 4).

Each twin is one line of a step written wrong, as somebody might well write it. With it in its place
the demo of the step that adds the line has to print something else: a demo that prints the same
promises little. `make test` tries some of four quick steps. All take about five minutes:

    python -m tests.contract_twins         are they seen?
    python -m tests.contract_twins 45c     those of one step

The whole demo counts here, with the statements marked `# here:`, since both runs are of the file.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

from steps.companion.contract import TYPES, differing, run
from steps.companion.curriculum import Curriculum
from steps.companion.source import Source

ROOT = Path(__file__).resolve().parent.parent


class Twin(NamedTuple):
    step: str
    name: str  # the definition, a member with its class
    old: str  # a part of a line that stands once in the definition
    new: str


# In the order of the steps. A line in the middle of a class is found by its member.
#
# Seven mistakes are not listed, since only a line written for the test would show them:
# - 45b, one state dict for all parameters: the demo moves one parameter.
# - 45b, RMSprop's eps inside of the root: no digit of four changes.
# - 45d AdamW and 48a Dropout, another default of weight_decay or p: the demos give both.
#   (The contract compares the defaults of all parameters, see `forms`.)
# - 47a, Dataset raises another error: a data set without __getitem__ teaches nothing.
# - 48c, Optimizer.state_dict without deepcopy: the demo saves the state at once, to a file.
# - 60b, LayerNorm without weight: the demo has the weights as they start. 58a sees this one.
TWINS = [
    # ---- stage 7
    Twin("41a", "zeros", "np.zeros(size", "np.ones(size"),
    Twin("41a", "Parameter", "requires_grad=True", "requires_grad=False"),
    Twin("41a", "Module.__call__", "self.forward(*args)", "self.forward"),
    Twin("41a", "Module.parameters", "yield from member.parameters()", "pass"),
    Twin("41b", "Linear.__init__", "1 / in_features**0.5", "1 / out_features**0.5"),
    Twin("41b", "Linear.forward", "y + self.bias", "y"),
    Twin("41b", "ReLU", "x.relu()", "x.relu() + 0.01 * x"),
    Twin("41b", "Sequential", "x = module(x)", "module(x)"),
    Twin("41c", "Module.named_children", "isinstance(member, Module)", "type(member) is Module"),
    Twin("41c", "Module.named_parameters", '"{name}.{path}"', '"{path}"'),
    Twin("41c", "Module.parameters", "yield parameter", "yield parameter * 1"),
    Twin("41c", "Module.__repr__", '"\\n  "', '"\\n "'),
    Twin("41c", "Module.extra_repr", 'return ""', 'return "..."'),
    Twin(
        "41c",
        "Linear.extra_repr",
        "in_features={m}, out_features={n}",
        "in_features={n}, out_features={m}",
    ),
    Twin("41c", "Sequential.forward", "x = module(x)", "module(x)"),
    Twin("42", "mse_loss", ".mean()", ".mean() / 2"),
    Twin("43", "sigmoid", "Sigmoid.apply(x)", "Sigmoid.apply(-x)"),
    Twin("43", "softplus", "Softplus.apply(x)", "Softplus.apply(-x)"),
    Twin("43", "Sigmoid.backward", "(1 - y)", "y"),
    Twin("43", "Softplus.backward", "Sigmoid, x", "Sigmoid, -x"),
    Twin(
        "43", "binary_cross_entropy_with_logits", "softplus(x) - x * target", "softplus(x) - target"
    ),
    Twin("44", "normal_", "* std", "* std**2"),
    Twin("44", "kaiming_normal_", "shape[1:]", "shape[:1]"),
    # ---- stage 8
    Twin("45a", "Optimizer.zero_grad", "p.grad = None", "pass"),
    Twin("45a", "SGD.update", "p.array -=", "p.array = p.array * 0.999 -"),
    Twin("45b", "SGD.update", "+ g", "+ (1 - self.momentum) * g"),
    Twin("45b", "SGD.__init__", "= momentum", "= momentum / 2"),
    Twin("45b", "Optimizer.__init__", "[{} for _ in self.params]", "[]"),
    Twin(
        "45b",
        "Optimizer.step",
        "self.update(p, p.grad.array, state)",
        "self.update(p, p.grad.array, {})",
    ),
    Twin("45b", "RMSprop.update", "* g * g", "* g"),
    Twin("45b", "RMSprop.__init__", "alpha=0.99", "alpha=0.9"),
    Twin("45c", "Adam.__init__", "0.999", "0.99"),
    Twin("45c", "Adam.update", "1 - beta2**step", "1"),
    Twin(
        "45d",
        "AdamW.update",
        "p.array *= 1 - self.lr * self.weight_decay",
        "g = g + self.weight_decay * p.array",
    ),
    Twin("46a", "clip_grad_norm_", "max_norm / (", "2 * max_norm / ("),
    Twin("46a", "clip_grad_norm_", "return Tensor(norm)", "return Tensor(norm * factor)"),
    Twin(
        "46b",
        "LambdaLR.step",
        "self.lr_lambda(self.last_epoch)",
        "self.lr_lambda(self.last_epoch - 1)",
    ),
    Twin("46b", "LambdaLR.step", "self.base_lr *", "self.optimizer.lr *"),
    Twin("47a", "TensorDataset", "tensor[index] for", "tensor[index - 1] for"),
    Twin("47a", "Subset", "self.dataset[self.indices[index]]", "self.dataset[index]"),
    Twin("47a", "random_split", "randperm(len(dataset)).tolist()", "list(range(len(dataset)))"),
    Twin("47b", "default_collate", "for column in columns]", "for column in [*columns][::-1]]"),
    Twin("47b", "DataLoader.__len__", "not self.drop_last", "self.drop_last"),
    Twin(
        "47b",
        "DataLoader.__iter__",
        "default_generator.rng.integers(1 << 62)\n        order",
        "order",
    ),
    Twin("48a", "Module.train", "child.train(mode)", "child.train()"),
    Twin("48a", "Module.eval", "self.train(False)", "self.train()"),
    Twin("48a", "Module.__init__", "True", "False"),
    Twin("48a", "dropout", "* (1 / (1 - p))", ""),
    Twin("48a", "dropout", ">= p", "< p"),
    Twin("48a", "Dropout", "self.p, self.training", "self.p, True"),
    Twin("48b", "Module.state_dict", "member.detach()", "member.detach() * 1"),
    Twin("48b", "Module.load_state_dict", "members.keys() != state_dict.keys()", "False"),
    Twin(
        "48b", "Module.load_state_dict", "value.shape != member.shape", "value.size != member.size"
    ),
    Twin("48b", "save", "pickle.dump(obj, file)", "pickle.dump(dict(list(obj.items())[:1]), file)"),
    Twin(
        "48b",
        "load",
        "return pickle.load(file)",
        "return {k: v * 1.01 for k, v in pickle.load(file).items()}",
    ),
    Twin("48c", "Optimizer.state_dict", "copy.deepcopy(self.state)", "[{} for _ in self.state]"),
    Twin("48c", "Optimizer.load_state_dict", 'copy.deepcopy(state_dict["state"])', "self.state"),
    Twin("48c", "LambdaLR.state_dict", "self.last_epoch", "0"),
    Twin("48c", "LambdaLR.load_state_dict", 'state_dict["last_epoch"]', "self.last_epoch"),
    Twin("48c", "get_rng_state", "default_generator.rng", "Generator().rng"),
    Twin("48c", "set_rng_state", "default_generator.rng", "Generator().rng"),
    # ---- stage 9
    Twin("50a", "pad", "left, right, top, bottom = pad", "top, bottom, left, right = pad"),
    Twin("50b", "permute", "Permute.apply(x, ", "Permute.apply(x, *"),
    Twin(
        "50b",
        "Permute.forward",
        "tuple(np.argsort([dim % x.ndim for dim in dims]).tolist())",
        "dims",
    ),
    Twin("50b", "Permute.forward", "dim % x.ndim", "dim"),
    Twin("50b", "Windows.backward", "ctx.shape, ctx.stride", "ctx.shape, 1"),
    Twin("50c", "conv2d", "permute(0, 2, 3, 1, 4, 5)", "permute(0, 2, 3, 1, 5, 4)"),
    Twin("50c", "conv2d", "if padding:", "if padding and stride == 1:"),
    Twin("50c", "conv2d", "y + bias", "y"),
    Twin("50c", "Conv2d.__init__", "kernel_size**2", "kernel_size"),
    Twin("50c", "Conv2d.forward", "self.stride, self.padding", "self.stride"),
    Twin("50d", "max_pool2d", "stride or kernel_size", "stride or 1"),
    Twin("50d", "max_pool2d", "where(Tensor(first), w, 0).sum(-1)", "w.mean(-1)"),
    Twin(
        "50d",
        "max_pool2d",
        "first = np.arange(kernel_size**2) == w.array.argmax(-1)[..., None]",
        "first = w.array == w.array.max(-1, keepdims=True)",
    ),
    Twin("50d", "MaxPool2d", "self.kernel_size, self.stride)", "self.kernel_size)"),
    Twin("50d", "Flatten", "len(x), -1", "-1, len(x)"),
    Twin("52a", "ones", "np.ones(size", "np.zeros(size"),
    Twin("52a", "var", "total.numel() - correction", "total.numel()"),
    Twin("52a", "BatchNorm.forward", ", correction=0", ""),
    Twin("52a", "BatchNorm.forward", "self.eps) ** 0.5", "self.eps)"),
    Twin("52a", "BatchNorm.__init__", "1e-5", "1e-3"),
    Twin("52b", "BatchNorm.__init__", "momentum=0.1", "momentum=0.2"),
    Twin("52b", "BatchNorm.forward", "x.var(dims) - ", "x.var(dims, correction=0) - "),
    Twin("52b", "BatchNorm.forward", "if self.training:", "if True:"),
    Twin("52b", "Module.__init__", "self._buffers = []", "self._buffers = ['weight']"),
    Twin("52b", "Module.register_buffer", "self._buffers.append(name)", "pass"),
    Twin("52b", "Module.named_parameters", "isinstance(member, Parameter)", "True"),
    Twin("52b", "Module.state_dict", "named_members", "named_parameters"),
    Twin("52b", "Module.load_state_dict", "named_members", "named_parameters"),
    Twin("53a", "randint", "integers(low, high, size)", "integers(low, high + 1, size)"),
    # ---- stage 10
    Twin("55a", "multinomial", "-np.log1p(-u) / p.array", "-np.log1p(-u) / p.array**2"),
    Twin("55a", "multinomial", "waiting.argsort()", "(-waiting).argsort()"),
    Twin(
        "55b",
        "Embedding",
        "randn(num_embeddings, embedding_dim)",
        "rand(num_embeddings, embedding_dim)",
    ),
    Twin("55b", "Embedding.forward", "self.weight[x]", "self.weight.detach()[x]"),
    Twin("56a", "MatMul.backward", "a.swapaxes(-2, -1) @ g", "b.swapaxes(-2, -1) @ g"),
    Twin("56a", "matmul", "if b.ndim == 2 < a.ndim:", "if b.ndim < a.ndim:"),
    Twin("56b", "Cat.forward", "dim % arrays[0].ndim", "0"),
    Twin("56b", "cat", "*tensors", "*tensors[::-1]"),
    Twin("56b", "stack", "dim % (len(shape) + 1), 1", "0, 1"),
    Twin("56b", "stack", "for x in tensors], dim", "for x in tensors]"),
    Twin("56b", "RNNCell.__init__", "1 / hidden_size**0.5", "1 / input_size**0.5"),
    Twin("56b", "RNNCell.forward", "h @ self.weight_hh.T", "h @ self.weight_hh"),
    Twin("56d", "chunk", "i * n + n", "i * n + n - 1"),
    Twin("56d", "LSTMCell.forward", "i, f, g, o =", "f, i, g, o ="),
    Twin("56d", "LSTMCell.forward", "o.sigmoid() * c.tanh()", "o.sigmoid() * c"),
    Twin("56d", "RNNCell.forward", ".tanh()", ".sigmoid()"),
    Twin("56d", "RNNCell.__init__", "1 / hidden_size**0.5", "1 / self.gates / hidden_size**0.5"),
    Twin("56e", "softmax", "z.sum(dim, ", "z.sum(-1, "),
    Twin("57a", "scaled_dot_product_attention", "query.shape[-1] ** 0.5", "query.shape[-1]"),
    Twin("57a", "scaled_dot_product_attention", "softmax(-1)", "softmax(-2)"),
    Twin(
        "57b",
        "scaled_dot_product_attention",
        "np.tri(*scores.shape[-2:], dtype",
        "np.tri(*scores.shape[-2:], k=1, dtype",
    ),
    Twin("58a", "LayerNorm.__init__", "1e-5", "1e-3"),
    Twin("58a", "LayerNorm.forward", "correction=0", "correction=1"),
    Twin("58a", "LayerNorm.forward", "y * self.weight + self.bias", "y"),
    Twin("58b", "gelu", "0.044715", "0.04"),
    Twin("58b", "GELU", "gelu(x, approximate=self.approximate)", "x.relu()"),
    Twin("59a", "Module.named_parameters", "found.add(member)", "pass"),
    Twin("59b", "topk", "-x.array", "x.array"),
    Twin("59b", "topk", "[:k]", "[: k + 1]"),
    Twin("60a", "GeluActivation.backward", "0.134145", "0.044715"),
    Twin("60a", "gelu", "GeluActivation.apply(x)", "GeluActivation.apply(x) * 1.01"),
    Twin("60b", "Softmax.backward", "ctx.dim", "-1"),
    Twin("60b", "Softmax.backward", "y * (g -", "(g -"),
    Twin("60b", "Softmax.forward", "x - x.max(axis=dim, keepdims=True)", "x"),
    Twin("60b", "softmax", "Softmax.apply(x, dim)", "Softmax.apply(x, -1)"),
    Twin("60b", "Normalization.backward", " - ctx.mean(g) -", " -"),
    Twin("60c", "Checkpoint.backward", "set_rng_state(ctx.rng_state)", "pass"),
    Twin("60c", "checkpoint", "Checkpoint.apply(function, *args)", "function(*args).detach()"),
    # ---- stage 11
    Twin("61a", "Tensor.dtype", "DType.by_numpy[self.array.dtype]", "float32"),
    Twin("61a", "tensor", "np.array(data, None if", "np.array(data, None if True or"),
    Twin("61b", "set_default_dtype", "Defaults.dtype = dtype", "pass"),
    Twin("61b", "get_default_dtype", "Defaults.dtype", "float32"),
    Twin("61b", "Tensor.__init__", "host_array(data, Defaults.dtype)", "host_array(data, None)"),
    Twin("61b", "tensor", "host_array(data, dtype)", "host_array(data, None)"),
    Twin("61b", "randn", "Defaults.dtype", "float32"),
    Twin("61b", "randperm", "tensor(", "Tensor("),
    Twin("61b", "Tensor.detach", "wrap(self.array.view())", "self"),
    Twin("61c", "promote_types", "return float32", "return a"),
    Twin("61c", "promote_types", "a.category > b.category", "a.itemsize > b.itemsize"),
    Twin("61c", "can_cast", "<=", "=="),
    Twin("61d", "result_type", "dtype.category > result.category", "dtype.category >= 0"),
    Twin("61d", "result_type", "int(operand.ndim == 0)", "0"),
    Twin("61d", "number_dtype", "return int64", "return int32"),
    Twin("61e", "to", "x = x.detach()", "pass"),
    Twin("61e", "Cast.backward", "ctx.call(Cast, g, ctx.dtype)", "g"),
    Twin("61e", "operands", "floating and not", "False and not"),
    Twin("61e", "add", "*operands(a, b)", "a, b"),
    Twin("61e", "sub", "*operands(a, b)", "a, b"),
    Twin("61e", "mul", "*operands(a, b)", "a, b"),
    Twin("61e", "div", "*operands(a, b, floating=True)", "a, b"),
    Twin("61e", "pow", "*operands(x, n)", "x, n"),
    Twin("61e", "matmul", "a.dtype is not b.dtype", "False"),
    Twin("61e", "as_tensor", "data if isinstance(data, Tensor) else", ""),
    Twin("61f", "sum", "x.to(int64)", "x"),
    Twin("61f", "sum_along", "dtype=np.float32", "dtype=np.float16"),
    Twin("62a", "tensor", "data = data.array", "return data"),
    Twin("62a", "as_tensor", "return from_numpy(data)", "return tensor(data)"),
    Twin("62a", "from_numpy", "array.view()", "array.copy()"),
    Twin("62a", "Tensor.numpy", "and GradMode.enabled", ""),
    Twin("62a", "clone", "Clone.apply(x)", "x"),
    Twin("62b", "MatMul.backward", "None if a is None else", "None and"),
    Twin("62b", "Mul.backward", "None if b is None else", "None and"),
    # ---- stage 12
    Twin("64a", "var_mean", "VarMean.apply(x, dim)", "VarMean.apply(x, None)"),
    Twin("64a", "VarMean.backward", "2 / (ctx.n - 1)", "2 / ctx.n"),
    Twin("65a", "grad", "np.array(value)", "np.asarray(value)"),
    Twin(
        "65b",
        "grad",
        "run_backward(outputs, given, retain_graph,",
        "run_backward(outputs, given, 0,",
    ),
    Twin("65b", "backward_pass", "node.saved != ()", "False"),
    Twin("65c", "register_hook", "append(hook)", "clear()"),
    Twin("65c", "run_hooks", "grad if answer is None else answer", "grad"),
    Twin("66a", "Tensor._version", "version_of(self.array)", "0"),
    Twin("66a", "bump_version", "storage_of(array)", "array"),
    Twin("66b", "modified_since", "entry[2] < time", "entry[2] > time"),
    Twin("66c", "assign", "rebase_history(target, values._edge)", "pass"),
    Twin("66d", "in_place", "self.clone()", "self"),
    Twin("67a", "Tensor._base", "self._view.base", "self._view"),
    Twin("67b", "View.refresh", "set_grad_enabled(True)", "set_grad_enabled(GradMode.enabled)"),
    Twin("67c", "CopySlices.backward", "ctx.call(Clone, g)", "g"),
    # gradcheck, and what a reader of stages 11 and 12 found
    Twin("61e", "operands", "x.item() if isinstance(x, np.generic) else x", "x"),
    Twin("67b", "Tensor.is_leaf", "self.grad_fn", "self._edge"),
    Twin("67c", "assign", "GradMode.enabled and ", ""),
    Twin("68a", "numerical_jacobian", "(2 * eps)", "eps"),
    Twin("68a", "numerical_jacobian", "(start + eps, start - eps)", "(start + eps, start)"),
    Twin("68b", "gradcheck", ".uniform(-1.0, 1.0, y.shape)", ".uniform(1.0, 1.0, y.shape)"),
    Twin("68b", "gradcheck", "isinstance(x, Tensor) and x.requires_grad", "isinstance(x, Tensor)"),
    Twin("68c", "gradgradcheck", "create_graph=True", "create_graph=False"),
    # ---- stage 16
    Twin("83b", "FunctionEvent.stop", " - self.inner_time", ""),
    Twin(
        "83b", "FunctionEventAvg.__init__", "event.self_cpu_time_total for", "0 * event.start for"
    ),
    Twin("83b", "profile.end", "+= event.cpu_time_total", "+= 0"),
    Twin("83b", "record_function.__exit__", "mode.end(event)", "pass"),
    Twin("83c", "profile.call_node", "node.name()", '"node"'),
    Twin("84b", "Segment.drop", "node.saved_arrays = tuple", "pass"),
    Twin(
        "84b", "Segment.recompute", "graph_since(time, output)", "graph_since(time, output)[::-1]"
    ),
    Twin("84b", "checkpoint", "segment.drop(output)", "pass"),
    Twin("84b", "Segment.recompute", "set_rng_state(self.random)", "pass"),
    Twin("84b", "Segment.recompute", "fork_rng(), ", ""),
    Twin("85a", "autocast.call", "in LOWER", "not in LOWER"),
    Twin("85a", "autocast.as_type", " and x.dtype is not float64", ""),
    Twin("85b", "autocast.call", "x, float32", "x, self.dtype"),
    Twin("85c", "GradScaler.scale", " * self._scale", ""),
    Twin("85c", "GradScaler.unscale_", "1 / self._scale", "1"),
    Twin("85c", "GradScaler.step", "self.unscale_(optimizer)", "pass"),
    Twin("85d", "GradScaler.unscale_", "not isfinite(p.grad).all().item()", "False"),
    Twin("85d", "GradScaler.step", "not self._found_inf[optimizer]", "True"),
    Twin("85d", "GradScaler.update", "/= 2", "/= 4"),
    Twin("85d", "GradScaler.update", "== self._growth_interval", "> self._growth_interval"),
    Twin("85d", "GradScaler.get_scale", "self._scale", "2 * self._scale"),
    Twin("86a", "FlopCounterMode.call", "args[0].shape[-1]", "args[0].shape[0]"),
    Twin("86a", "FlopCounterMode.call_node", "node.edges[:2]", "node.edges"),
    Twin("86c", "quantize_rows", "amax(1, keepdim=True)", "max()"),
    Twin("86c", "Int8Linear.forward", " * self.scale.T", ""),
    Twin("86d", "quantize", "isinstance(child, Linear)", "False"),
    # ---- stage 15: nothing of it is offered where programs for PyTorch look; mistakes all the same
    Twin("79a", "register", "lambda array, index: cupy.array(array)", "lambda array, index: array"),
    Twin("79b", "on_cuda", 'backends["cuda"].array_type, function', "object, function"),
    Twin("80a", "launch", "range(block)", "range(block - 1)"),
    Twin("80a", "launch", "random.Random(seed).shuffle(threads)", "pass"),
    Twin("80b", "Memory.array", "len(self.words) - len(numbers)", "len(self.words)"),
    Twin("80b", "Pointer.tolist", "self.address + n", "self.address + n - 1"),
    Twin("80c", "Memory.note", "address // 8", "address // 4"),
    Twin("80c", "Memory.note", "t.threadIdx // 32, t.accesses", "t.threadIdx // 32"),
    Twin("80d", "Thread.warp", "x + size.x * (y + size.y * z)", "y + size.y * (x + size.x * z)"),
    Twin("80d", "Dim3.places", "range(self.y)", "range(1)"),
    Twin("80e", "launch", "runs = waiting", "runs = []"),
    Twin("80e", "stops", "yield from result", "list(result)"),
    Twin("80f", "Memory.write", "Memory.arrive(Memory.order.randrange(2))", "Memory.arrive(9)"),
    Twin("80f", "Memory.arrive", "del Memory.under_way[:n]", "del Memory.under_way[n:]"),
    Twin("80f", "Memory.read", "reversed(Memory.under_way)", "Memory.under_way[:0]"),
    Twin("80f", "atomic_add", "words[address] += value", "words[address] = value"),
    Twin("81a", "matmul_naive", "if i < m and j < n", "if i < m"),
    Twin("81a", "matmul_tiled", "yield  # no thread writes before all have read", "pass"),
    Twin("81b", "softmax_kernel", "yield  # all have read the maxima", "pass  # all have read"),
    Twin("81b", "softmax_kernel", "math.exp(t.shared[j] - top)", "math.exp(t.shared[j])"),
    Twin("81c", "philox", "range(10)", "range(9)"),
    Twin("81c", "philox", "0xBB67AE85) & low", "0xBB67AE84) & low"),
    Twin("82a", "Kernel.launch", "(grid, block, args)", "(block, grid, args)"),
    Twin("82b", "Stream.put", "max(self.end, Stream.now)", "Stream.now"),
    Twin("82b", "Stream.wait_stream", "max(self.end, other.end)", "self.end"),
    Twin("82c", "Pool.free", "self.free_blocks.setdefault(size, []).append(address)", "pass"),
    Twin("82c", "Storage.__del__", "self.pool.free(self.address, self.size)", "pass"),
    Twin("82d", "tl.load", "shape, other)", "shape, 0.0)"),
    Twin("82d", "lanes", "if mask[index]", "if True"),
    Twin("82e", "linear_tile", "mask=rows < n)", "mask=rows < 1)"),
    Twin("82e", "linear_softmax", "y - tl.max(y, axis=1, keepdims=True)", "-y"),
    Twin("82e", "linear_relu", "y_ptr + offsets", "y_ptr"),
    # ---- stage 18
    Twin("94b", "get_rank", "here.group.rank", "0"),
    Twin("94b", "get_world_size", "here.group.size", "here.group.size - 1"),
    Twin("94b", "World.send", "array.copy()", "array"),
    Twin("94b", "send", "tensor.array, dst)", "tensor.array, 0)"),
    Twin("94b", "recv", "tensor.array[...] =", "array ="),
    Twin("94b", "simulate", "return function(*args)", "return None"),
    Twin("94b", "init_process_group", "here.group = here.world", "pass"),
    Twin("94c", "broadcast", "get_rank() == src", "get_rank() == 0"),
    Twin("94c", "all_reduce", "tensor.array += came.array", "tensor.array[...] = came.array"),
    Twin("94d", "reduce_scatter_tensor", "rank - step - 1", "rank - step"),
    Twin("94d", "all_gather_into_tensor", "(rank - step) % size", "rank"),
    Twin("94d", "all_reduce", "-(-n // size)", "(n // size + 1)"),
    Twin("94e", "init_process_group", "if hasattr(", "if not hasattr("),
    Twin("95b", "DistributedDataParallel.__init__", "broadcast(each.detach(), 0)", "pass"),
    Twin("95b", "DistributedDataParallel.forward", "self.module(*inputs)", "inputs[0]"),
    Twin("95b", "DistributedDataParallel.average", "get_world_size()", "1"),
    Twin("95c", "Bucket.__init__", "part.view(param.shape)", "part.clone().view(param.shape)"),
    Twin("95d", "divide_into_buckets", "filling = []\n", "filling = filling\n"),
    Twin("95c", "DistributedDataParallel.average", " / get_world_size()", ""),
    Twin("95c", "DistributedDataParallel.finish", "param.grad.copy_(view)", "pass"),
    Twin("95d", "DistributedDataParallel.__init__", "params[::-1]", "params"),
    Twin("95d", "DistributedDataParallel.finish", "bucket.work.wait()", "pass"),
    Twin("95d", "DistributedDataParallel.average", "self.launched += 1", "self.launched += 2"),
    Twin("95e", "DistributedDataParallel.no_sync", "= False", "= True"),
    Twin("95e", "DistributedDataParallel.average", "not self.reducing", "self.reducing"),
    Twin("95e", "DistributedDataParallel.forward", "self.require_backward_grad_sync", "True"),
    Twin("95f", "DistributedSampler.__init__", "math.ceil(share)", "math.floor(share)"),
    Twin("95f", "DistributedSampler.__iter__", "self.seed + self.epoch", "self.seed"),
    Twin("95f", "DistributedSampler.set_epoch", "self.epoch = epoch", "pass"),
    Twin("96a", "ZeroRedundancyOptimizer.__init__", "reverse=True", "reverse=False"),
    Twin("96a", "ZeroRedundancyOptimizer.zero_grad", "param.grad = None", "pass"),
    Twin(
        "96a",
        "ZeroRedundancyOptimizer.step",
        "broadcast(param.detach(), self.owners[param])",
        "pass",
    ),
    Twin("96b", "AllReduce.backward", "ctx.call(AllReduce, g)", "g"),
    Twin("96c", "CopyToAll.backward", "ctx.call(SumOfAll, g)", "g"),
    Twin("96c", "SumOfAll.backward", "ctx.call(CopyToAll, g)", "ctx.call(SumOfAll, g)"),
    Twin("96c", "own_part", "dim)[get_rank()]", "dim)[0]"),
    Twin(
        "96c", "RowParallelLinear.forward", "self.weight)) + self.bias", "self.weight, self.bias))"
    ),
    # ---- stage 14
    Twin("75a", "ModuleList.append", "str(len(self))", "str(len(self) + 1)"),
    Twin("75a", "ModuleList.__iter__", "child for _, child", "_ for _, child"),
    Twin("75a", "ModuleDict.__setitem__", "setattr(self, key, member)", "pass"),
    Twin("75b", "Module.__setattr__", "isinstance(value, Parameter)", "isinstance(value, Tensor)"),
    Twin("75b", "Module.__getattr__", "raise AttributeError(", "return repr("),
    Twin("75b", "Module._register", "value is not None and", "False and"),
    Twin("75b", "Module._register", "and hasattr(self, name)", "and False"),
    Twin("75b", "Module.register_parameter", '"_parameters"', '"_modules"'),
    Twin("75b", "Module.register_buffer", '"_buffers", name', '"_modules", name'),
    Twin("75c", "Module.load_state_dict", "if strict and (", "if ("),
    Twin("75c", "Module.load_state_dict", "value.shape != member.shape", "False"),
    Twin("75c", "Module.load_state_dict", "IncompatibleKeys(missing, unexpected)", "None"),
    Twin("75d", "Module.__call__", "output if answer is None else answer", "output"),
    Twin("75d", "Module.register_forward_pre_hook", "_forward_pre_hooks", "_forward_hooks"),
    Twin("75d", "RemovableHandle.remove", "self.hooks.pop(self, None)", "pass"),
    Twin("76a", "Optimizer.__init__", "{**defaults, **g,", "{**g, **defaults,"),
    Twin("76a", "AdamW.__init__", "weight_decay)", "0.0)"),
    Twin("76a", "Adam.update", "p.array -= lr", "p.array -= 2 * lr"),
    Twin("76b", "Adam.update", "p -= lr", "p = p - lr"),
    Twin("76b", "AdamW.update", "p *= 1 -", "p *= 1 +"),
    Twin("76b", "Optimizer.step", "start += p.numel()", "start += 1"),
    Twin("77a", "RandomSampler.__iter__", "generator=generator", "generator=None"),
    Twin("77a", "SubsetRandomSampler.__iter__", "self.indices[i] for", "i for"),
    Twin("77a", "SequentialSampler.__iter__", "range(len(", "range(1, len("),
    Twin("77a", "DataLoader.__iter__", "not self.drop_last", "True"),
    Twin("77b", "WeightedRandomSampler.__iter__", "self.replacement", "False"),
    Twin("77c", "BatchSampler.__iter__", "not self.drop_last", "False"),
    Twin("77c", "DataLoader.__init__", "collate_fn or default_collate", "default_collate"),
    Twin("77e", "work", "manual_seed(seed)", "pass"),
    Twin("77e", "DataLoader.__iter__", "seed + number)", "seed)"),
    Twin("78a", "Reader.find_class", "name not in allowed", "False"),
    Twin("78a", "Writer.reducer_override", "array.tobytes()", "array[::-1].tobytes()"),
    Twin("78a", "save", "Writer(file)", "pickle.Pickler(file)"),
    Twin("78a", "load", "Reader(file)", "pickle.Unpickler(file)"),
    Twin("78b", "load", "Reader(archive).load()", "Reader(archive).archive"),
    Twin("78b", "rebuild", "min(offset, *size, *stride, 0) < 0 or", "False and"),
    Twin("78b", "Reader.persistent_load", "if key not in self.memories:", "if True:"),
    Twin("78c", "jacobian", "in units]", "in [*units][::-1]]"),
    # ---- stage 13
    Twin("69a", "Tensor.stride", "return self.steps", "return self.steps[::-1]"),
    Twin("69a", "Tensor.storage_offset", "return self.start", "return self.start + 1"),
    Twin("69a", "Tensor.tolist", "self.start + i * self.steps[0]", "i * self.steps[0]"),
    Twin("69a", "as_strided", "storage_offset\n    return", "0\n    return"),
    Twin("69a", "tensor", "row_order(shape)", "row_order(shape)[::-1]"),
    Twin("69b", "Tensor.transpose", "order[dim1], order[dim0]\n", "order[dim0], order[dim1]\n"),
    Twin("69b", "Tensor.permute", "[self.shape[d] for d in dims]", "self.shape"),
    Twin("69b", "Tensor.is_contiguous", "n == 1 or step == usual", "step == usual"),
    Twin(
        "69b", "Tensor.contiguous", "self if self.is_contiguous() else self.clone()", "self.clone()"
    ),
    Twin("69b", "Tensor.clone", "places(self)", "range(len(self.memory))"),
    Twin("69d", "Tensor.view", "self.start)", "0 * self.start + 1)"),
    Twin("69d", "Tensor.reshape", "self.clone().view", "self.transpose(0, 1).view"),
    Twin("69e", "Tensor.expand", "0 if old == 1 else step", "0 if old == 1 or size == 3 else step"),
    Twin("70a", "Tensor.__getitem__", "chosen.step * step", "step"),
    Twin("70a", "Tensor.__getitem__", "part % n * step", "part % n"),
    Twin("70b", "broadcast_shapes", "max(sizes)", "min(sizes)"),
    Twin("70b", "Tensor.__getitem__", "chosen], shape)", "reversed(chosen)], shape)"),
    Twin("70c", "nonzero", "if input.memory[place]", "if not input.memory[place]"),
    Twin("70c", "Tensor.unbind", "(*before, i)", "(*before, 0)"),
    Twin("70c", "Tensor.__gt__", "> number", ">= number"),
    Twin("70d", "Tensor.__setitem__", "places(part), part.shape", "places(part)[::-1], part.shape"),
    Twin("72a", "exp", "g * y)", "g)"),
    Twin("72a", "sin", "xp.cos(x)", "xp.sin(x)"),
    Twin("72a", "tanh", "g - g * y * y", "g - g * y"),
    Twin("72a", "sqrt", "g / (2 * y)", "g / y"),
    Twin("72b", "Sum.backward", "ctx.spread(g)", "g"),
    Twin("72b", "Mean.backward", "g / ctx.count", "g"),
    Twin("72b", "Reduction.begin", "i % x.ndim for i", "0 * i for i"),
    Twin("72c", "Var.forward", "ctx.count - correction", "ctx.count"),
    Twin("72c", "Var.backward", "* 2", "* 1"),
    Twin("72d", "Gather.backward", "ctx.dim, ctx.shape", "1 - ctx.dim, ctx.shape"),
    Twin("72d", "ScatterAdd.forward", "np.add.at(y, tuple(key), x)", "y[tuple(key)] = x"),
    Twin("72d", "scatter_add", "input + ", ""),
    Twin("72e", "max", "pair if keepdim else", "pair if not keepdim else"),
    Twin("72e", "ArgMax", "argmax", "argmin"),
    Twin("72e", "ArgSort", "x.argsort", "(-x).argsort"),
    Twin("72f", "Einsum.backward", "*names[k + 1 :], names[k]", "*names[k + 1 :][::-1], names[k]"),
    Twin("72f", "aligned", "if letter in names]", "if letter in names][::-1]"),
    Twin("72g", "Unfold.forward", "x.strides[dim] * step\n", "x.strides[dim]\n"),
    Twin("72g", "Fold.forward", "+= x", "= x"),
    Twin("74a", "Tensor.stride", "self.c.stride[: self.c.ndim]", "self.c.shape[: self.c.ndim]"),
    Twin("74b", "Tensor.tolist", "i * self.c", "0 * i * self.c"),
    Twin("74b", "tensor", "enumerate(level)", "enumerate(level[::-1])"),
    Twin("74b", "Tensor.transpose", "for numbers in (shape, stride)", "for numbers in (shape,)"),
    Twin("74c", "Tensor.__add__", "other.c", "self.c"),
    Twin("72b", "mean", "dim, keepdim)", "None, keepdim)"),
    Twin("72b", "sum", "dim, keepdim)", "dim, True)"),
    Twin("72c", "var", "keepdim, correction)", "keepdim, 1)"),
    Twin("72d", "gather", "index, dim)", "index, 1)"),
    Twin("72e", "sort", "ArgSort.apply(input, dim)", "ArgSort.apply(input * 0, dim)"),
    Twin(
        "72g",
        "unfold",
        "Unfold.apply(self, dimension, size, step)",
        "Unfold.apply(self, dimension, size - 1, step)",
    ),
    Twin("74a", "empty", "(*size))", "(*size[::-1]))"),
    Twin("74b", "as_strided", "longs(*stride)", "longs(*size)"),
    # Stage 17.
    Twin("88a", "compile", "Compiled(model)", "Compiled(lambda x, n: model(x, 1))"),
]


def broken(source: Source, twin: Twin) -> str:
    """The text of a step with the twin in its place; ValueError if its line is not there once."""
    definition = source.definitions[twin.name]
    if definition.text.count(twin.old) != 1:
        raise ValueError(f"{twin.name} has {twin.old!r} {definition.text.count(twin.old)} times")
    before = source.text.splitlines(True)[: definition.first - 1]
    start = len("".join(before))
    rest = source.text[start:]
    return source.text[:start] + rest.replace(twin.old, twin.new, 1)


@cache
def printed(number: str):
    """What the demo of a step prints as it is."""
    step = curriculum().step(number)
    return demo(step, step.source.text)


def demo(step, text: str):
    """What the text of a step prints; in float64 before stage 11, as the contract has it."""
    double = step.stage.number < TYPES
    return run(ROOT, step.path, text, curriculum().contract["own"], double=double)


@cache
def curriculum() -> Curriculum:
    return Curriculum(ROOT)


def seen(twin: Twin) -> str:
    """What the demo prints or raises instead with this twin in its place; "" if it sees nothing."""
    step = curriculum().step(twin.step)
    other = demo(step, broken(step.source, twin))
    return other.failed or "\n".join(differing(printed(twin.step).lines, other.lines))


def main(numbers) -> int:
    twins = [twin for twin in TWINS if not numbers or twin.step in numbers]
    missed = 0
    with ThreadPoolExecutor(2) as pool:
        for twin, what in zip(twins, pool.map(seen, twins), strict=True):
            verdict = "seen" if what else "NOT SEEN"
            print(
                f"{verdict:8} {twin.step:4} {twin.name}: {twin.old!r} -> {twin.new!r}", flush=True
            )
            missed += not what
    print(f"{len(twins) - missed} of {len(twins)} seen")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

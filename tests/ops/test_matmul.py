"""Matrix products and einsum: every pair of shapes, gradients to second order, refusals."""

import numpy as np
import pytest

import tinytorch as tt
from tinytorch.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (6, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((2, 2, 2, 3), (3, 1)),
    ((2, 0), (0, 4)),
    ((0, 3), (3, 4)),
    ((5, 0, 3), (3, 4)),
    ((2, 3), (0, 3, 4)),
    ((0, 0), (5, 0, 0)),
]


def values(tensor):
    return tensor.detach().cpu().numpy()


@pytest.mark.parametrize("a_shape, b_shape", SHAPES)
def test_matmul(a_shape, b_shape, device):
    a, b = RNG.normal(size=a_shape), RNG.normal(size=b_shape)
    x = tt.tensor(a, device=device, requires_grad=True)
    y = tt.tensor(b, device=device, requires_grad=True)
    got = x @ y
    assert got.shape == np.matmul(a, b).shape
    np.testing.assert_allclose(values(got), a @ b, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(values(x.float() @ y.float()), a @ b, rtol=1e-4, atol=1e-5)
    assert gradcheck(tt.matmul, (x, y))
    if a.size * b.size < 400:
        assert gradgradcheck(tt.matmul, (x, y))


@pytest.mark.parametrize("a_shape, b_shape", SHAPES)
def test_matmul_of_views_and_with_one_constant(a_shape, b_shape):
    a, b = RNG.normal(size=a_shape), RNG.normal(size=b_shape)
    x, y = tt.tensor(a.T, requires_grad=True), tt.tensor(b.T, requires_grad=True)
    back_x, back_y = (tuple(reversed(range(n.ndim))) for n in (a, b))
    np.testing.assert_allclose(
        values(x.permute(back_x) @ y.permute(back_y)), a @ b, rtol=1e-12, atol=1e-12
    )
    assert gradcheck(lambda x: x.permute(back_x) @ tt.tensor(b), x)
    assert gradcheck(lambda y: tt.tensor(a) @ y.permute(back_y), y)


def test_integers():
    a = tt.tensor([[1, 2], [3, 4]])
    assert (a @ a).tolist() == [[7, 10], [15, 22]]
    assert (a @ a).dtype is tt.int64


@pytest.mark.parametrize("dtype", [tt.float16, tt.bfloat16], ids=str)
def test_halves(dtype):
    if dtype is tt.bfloat16:
        pytest.importorskip("ml_dtypes")
    x = tt.ones(1, 5000, dtype=dtype, requires_grad=True)
    y = x @ (x.detach() / 8).T
    assert y.dtype is dtype and y.item() == np.float32(625.0).astype(y.array.dtype)
    y.sum().backward()
    assert x.grad.dtype is dtype and x.grad[0, 0].item() == 0.125


MISFITS = {
    "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)": ((2, 3), (4, 5)),
    "mat1 and mat2 shapes cannot be multiplied (8x3 and 4x5)": ((4, 2, 3), (4, 5)),
    "mat1 and mat2 shapes cannot be multiplied (2x3 and 4)": ((2, 3), (4,)),
    "mat1 and mat2 shapes cannot be multiplied (3 and 4)": ((3,), (4,)),
    "mat1 and mat2 shapes cannot be multiplied (3 and 4x5)": ((3,), (2, 4, 5)),
    "the batch dimensions of [2, 3, 4] and [3, 4, 5] do not match": ((2, 3, 4), (3, 4, 5)),
    "at least 1D, they are 0D and 2D": ((), (2, 3)),
}


@pytest.mark.parametrize("message", MISFITS)
def test_shapes_that_do_not_fit(message, device):
    a, b = (tt.zeros(shape, device=device) for shape in MISFITS[message])
    with pytest.raises(RuntimeError) as error:
        a @ b
    assert message in str(error.value)


def test_types_are_never_promoted():
    with pytest.raises(RuntimeError, match="same dtype, but got: float != double"):
        tt.zeros(2, 3) @ tt.zeros(3, 4, dtype=tt.float64)
    with pytest.raises(RuntimeError, match="same dtype, but got: float != int64"):
        tt.zeros(2, 3) @ tt.tensor([1, 2, 3])
    with pytest.raises(NotImplementedError):
        tt.tensor([True]) @ tt.tensor([True])
    with pytest.raises(TypeError, match="must be Tensor, not int"):
        tt.zeros(2, 3) @ 2


m, v, w, c = (tt.tensor(RNG.normal(size=s)) for s in [(2, 3), (3,), (2,), (2, 2, 3)])
FAMILY = {
    "mm": (lambda: tt.mm(m, m.T), lambda: m @ m.T),
    "bmm": (lambda: tt.bmm(c, c.mT), lambda: c @ c.mT),
    "mv": (lambda: m.mv(v), lambda: m @ v),
    "dot": (lambda: v.dot(v), lambda: (v * v).sum()),
    "outer": (lambda: tt.outer(w, v), lambda: w.reshape(2, 1) * v),
    "addmm": (lambda: tt.addmm(w, m, m.T, beta=0.5, alpha=2), lambda: 0.5 * w + 2 * (m @ m.T)),
    "addmm, beta 0": (lambda: tt.addmm(w / 0, m, m.T, beta=0), lambda: m @ m.T),
    "trace": (lambda: (m @ m.T).trace(), lambda: (m * m).sum()),
}


@pytest.mark.parametrize("name", FAMILY)
def test_family(name):
    got, want = (side() for side in FAMILY[name])
    assert got.shape == want.shape
    np.testing.assert_allclose(values(got), values(want), rtol=1e-12, atol=1e-12)


def test_family_is_strict_about_dimensions():
    for call in (
        lambda: tt.mm(m, v),
        lambda: tt.bmm(m, m),
        lambda: tt.bmm(c, c),
        lambda: tt.mv(v, v),
        lambda: tt.dot(m, m),
        lambda: tt.outer(m, v),
        lambda: tt.addmm(v, m, m.T),
        lambda: tt.trace(v),
    ):
        with pytest.raises(RuntimeError):
            call()


def test_integers_in_addmm():
    a = tt.tensor([[1, 2], [3, 4]])
    assert tt.addmm(a, a, a).tolist() == [[8, 12], [18, 26]]
    assert tt.addmm(a, a, a, beta=0.5).dtype is tt.int64


EQUATIONS = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "ij,kj": [(2, 3), (4, 3)],
    "ij->ji": [(2, 3)],
    "ij": [(2, 3)],
    "ba": [(2, 3)],
    "ij->": [(2, 3)],
    "ii": [(3, 3)],
    "ii->i": [(3, 3)],
    "iji->j": [(2, 3, 2)],
    "iii->i": [(2, 2, 2)],
    "i,j->ij": [(2,), (3,)],
    "i,i->": [(3,), (3,)],
    "ij,ij->ij": [(2, 3), (2, 3)],
    "bij,bjk->bik": [(4, 2, 3), (4, 3, 2)],
    "bhqd,bhkd->bhqk": [(2, 2, 3, 4), (2, 2, 5, 4)],
    "...ij,...jk->...ik": [(4, 2, 3), (3, 5)],
    "...i->...": [(2, 3, 4)],
    "i...,i...->...": [(2, 3), (2, 3)],
    "...,...": [(2, 3), (3,)],
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 2)],
    "ij,j,k->i": [(2, 3), (3,), (4,)],
    "ij,ij->j": [(1, 3), (2, 3)],
    "Aa,aB->AB": [(2, 3), (3, 4)],
    " i j , j k -> k i ": [(2, 3), (3, 4)],
    "ij,kl->k": [(2, 3), (4, 5)],
    "ab,bc->ac": [(0, 3), (3, 4)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation, device):
    arrays = [RNG.normal(size=shape) for shape in EQUATIONS[equation]]
    tensors = [tt.tensor(array, device=device, requires_grad=True) for array in arrays]
    got = tt.einsum(equation, *tensors)
    want = np.einsum(equation.replace(" ", ""), *arrays)
    assert got.shape == want.shape
    np.testing.assert_allclose(values(got), want, rtol=1e-12, atol=1e-12)
    assert gradcheck(lambda *t: tt.einsum(equation, *t), tensors)
    if sum(array.size for array in arrays) < 20:
        assert gradgradcheck(lambda *t: tt.einsum(equation, t), tensors)


BAD_EQUATIONS = {
    "ij,jk": "more operands|fewer operands",
    "i": "does not match the number of dimensions",
    "ijk": "does not match the number of dimensions",
    "i1": r"\[a-zA-Z\]",
    "ii": "repeated for operand 0 but the sizes don't match, 3 != 2",
    "ij->k": "output subscript",
    "ij->ii": "output subscript",
}


@pytest.mark.parametrize("equation", BAD_EQUATIONS)
def test_einsum_refuses(equation):
    with pytest.raises(RuntimeError, match=BAD_EQUATIONS[equation]):
        tt.einsum(equation, tt.zeros(2, 3))


def test_einsum_refuses_sizes_and_types():
    with pytest.raises(RuntimeError, match="subscript j has size 2 .* previously seen size 3"):
        tt.einsum("ij,jk", tt.zeros(2, 3), tt.zeros(2, 3))
    with pytest.raises(RuntimeError, match="same dtype"):
        tt.einsum("i,i", tt.zeros(2), tt.tensor([1, 2]))


def test_a_product_added_in_place():
    x, a = tt.ones(2, 2), tt.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.addmm_(a, a, beta=2, alpha=-1) is x
    assert x.tolist() == [[-5.0, -8.0], [-13.0, -20.0]]

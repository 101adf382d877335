"""The transforms: what they do, what they refuse, and how often the random ones do it."""

import numpy as np
import pytest

import tinytorch
from tinytorch.datasets.transforms import (
    Compose,
    Lambda,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    ToTensor,
)

IMAGE = tinytorch.arange(12.0).reshape(1, 3, 4)


def test_to_tensor():
    pixels = np.array([[0, 51, 255]], np.uint8)
    for image in (pixels, tinytorch.tensor(pixels)):
        out = ToTensor()(image)
        assert out.shape == (1, 1, 3) and out.dtype is tinytorch.float32
        assert out.tolist() == [[[0.0, pytest.approx(0.2), 1.0]]]
    assert ToTensor()(np.zeros((4, 5, 3), np.uint8)).shape == (3, 4, 5)
    assert ToTensor()(np.full((2, 2), 7, np.int64)).tolist() == [[[7, 7], [7, 7]]]
    for shape in ((3,), (1, 2, 3, 4)):
        with pytest.raises(ValueError, match="2 or 3 dimensions"):
            ToTensor()(np.zeros(shape))


def test_normalize(device):
    image = tinytorch.ones(2, 3, 4, device=device)
    out = Normalize([1.0, 0.5], [1.0, 0.25])(image)
    assert out.tolist() == [[[0.0] * 4] * 3, [[2.0] * 4] * 3]
    assert out.dtype is tinytorch.float32 and out.device == image.device
    assert Normalize((0.5,), (2.0,))(image).shape == (2, 3, 4)
    with pytest.raises(ValueError, match="std"):
        Normalize([0.0], [0.0])


def test_compose_and_lambda():
    both = Compose([Lambda(lambda x: x + 1), Lambda(lambda x: x * 2)])
    assert both(3) == 8
    assert repr(Compose([ToTensor(), Normalize([0.5], [1.0])])) == (
        "Compose(transforms=[ToTensor(), Normalize(mean=[0.5], std=[1.0])])"
    )


def test_random_horizontal_flip(device):
    image = IMAGE.to(device)
    turned = image.flip(-1).tolist()
    assert RandomHorizontalFlip(1.0)(image).tolist() == turned
    assert RandomHorizontalFlip(0.0)(image).tolist() == image.tolist()
    tinytorch.manual_seed(0)
    count = sum(RandomHorizontalFlip(0.3)(image).tolist() == turned for _ in range(1000))
    assert 250 < count < 350


def test_random_crop(device):
    image = IMAGE.to(device)
    tinytorch.manual_seed(0)
    seen = set()
    for _ in range(200):
        part = RandomCrop((2, 3))(image)
        assert part.shape == (1, 2, 3)
        first = part[0, 0, 0].item()
        assert part.tolist() == [[[first + 4 * i + j for j in range(3)] for i in range(2)]]
        seen.add(first)
    assert seen == {0, 1, 4, 5}  # each place, and no other
    assert RandomCrop(5, padding=1)(image).shape == (1, 5, 5)
    assert RandomCrop((5, 6), padding=1)(image)[0, 1:4, 1:5].tolist() == image[0].tolist()
    assert RandomCrop(3)(image[0]).shape == (3, 3)
    with pytest.raises(ValueError, match=r"a crop of \(4, 4\) from \(3, 4\)"):
        RandomCrop(4)(image)


def test_the_same_seed_gives_the_same_images():
    transform = Compose([RandomCrop(2, padding=1), RandomHorizontalFlip()])

    def ten():
        tinytorch.manual_seed(5)
        return [transform(IMAGE).tolist() for _ in range(10)]

    assert ten() == ten()


def test_normalize_wants_floats_and_keeps_gradients():
    with pytest.raises(TypeError, match="uint8"):
        Normalize([0.5], [0.5])(tinytorch.zeros(1, 2, 2, dtype=tinytorch.uint8))
    normalize = Normalize([0.5], [0.25])
    image = tinytorch.ones(1, 2, 2, requires_grad=True)
    normalize(image).sum().backward()
    assert image.grad.tolist() == [[[4.0] * 2] * 2]
    assert normalize(tinytorch.ones(1, 1, 1, dtype=tinytorch.float64)).dtype is tinytorch.float64
    assert normalize(tinytorch.ones(5, 1, 2, 2)).shape == (5, 1, 2, 2)

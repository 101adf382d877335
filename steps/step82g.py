"""Step 82g: A whole training run

All the parts are there: data, loader, network, loss, optimizer, schedule, file. This step adds data
sets like those of torchvision, and transforms, and puts everything together.

A data set is files, and a file is a row of bytes with an agreed meaning. MNIST's is IDX:
two zeros, a number for the type, the number of dimensions, the dimensions (most significant byte
first), then the numbers. What comes over the network may be anything: a "not found" page, half a
file, other data. So nothing is downloaded unless you ask for it, and a download is kept only if its
SHA-256 is the one written here.

Which digits are held out decides what is measured. Step 65o held out 360 at random: the network had
seen digits by the same people in training. Here it is the last 360 of the file, and more of them
are read wrong. The digits of its 13 writers seem to follow one another, so the end of the file is
closer to a digit that you will write.

A network knows no more than it was shown. Move the test images by one pixel, and it fails, though
nothing has changed for us. More data would help, and we can make it: RandomCrop takes 8 by 8 pixels
from a 10 by 10 padded image, at another place each time. Such a transform belongs to training only.
(RandomHorizontalFlip is for cats. A mirrored 2 is not a digit.)

The demo trains with and without it, and saves a run in its middle. To go on bit for bit, a
checkpoint needs everything that a step changes: the weights, Adam's moments, the place in the
schedule, and the state of the random numbers that shuffle and crop. Leave one out, and the run goes
on, but it is a different one.

(In PyTorch, the data sets and transforms are in a package of their own, torchvision.)

New: MNIST, FashionMNIST, read_idx, and the transforms.
Try: leave set_rng_state out of `resume`. Is the end the same? Or --mnist FOLDER, to train on MNIST.
"""

import gzip
import hashlib
import importlib
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.device import Device
from tinytorch.core.dtype import DType, uint8
from tinytorch.core.tensor import Tensor, from_numpy, tensor
from tinytorch.datasets.labelled import Labelled
from tinytorch.ops.joining import constant_pad
from tinytorch.ops.parts import flip
from tinytorch.ops.random import rand, randint
from tinytorch.serialization import replacing

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Transform:
    """A function with settings, which it shows."""

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{type(self).__name__}({settings})"


class Compose(Transform):
    """One transform after the other."""

    def __init__(self, transforms: Sequence[Callable]):
        self.transforms = list(transforms)

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class Lambda(Transform):
    """A function of your own. (DataLoader's workers can be sent named functions only.)"""

    def __init__(self, lambd: Callable):
        self.lambd = lambd

    def __call__(self, image: Any) -> Any:
        return self.lambd(image)


class ToTensor(Transform):
    """[height, width] or [height, width, channels], an array or a tensor, to a tensor of floats
    [channels, height, width]. Bytes, 0 to 255, become 0 to 1; other types keep their numbers.

    Raises:
        ValueError: for another number of dimensions.
    """

    def __call__(self, image: Any) -> Tensor:
        image = from_numpy(image) if isinstance(image, np.ndarray) else image
        if image.array.ndim not in (2, 3):
            raise ValueError(f"an image has 2 or 3 dimensions, not {image.array.ndim}")
        image = image.unsqueeze(0) if image.array.ndim == 2 else image.permute(2, 0, 1)
        return image / 255 if image.dtype is uint8 else image


@cache
def column(values: tuple[float, ...], dtype: DType, device: Device) -> Tensor:
    """One number for each channel, in the shape [channels, 1, 1]. Made once, and not per image."""
    return tensor(values, dtype=dtype, device=device)[:, None, None]


class Normalize(Transform):
    """(image - mean) / std for each channel. ValueError for a std of 0, TypeError for an image of
    integers."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]):
        if any(value == 0 for value in std):
            raise ValueError(f"std must not be 0, got {std}")
        self.mean, self.std = mean, std

    def __call__(self, image: Tensor) -> Tensor:
        if not image.is_floating_point():
            raise TypeError(f"an image of floats is to be normalized, not {image.dtype}")
        like = image.dtype, image.device
        return (image - column(tuple(self.mean), *like)) / column(tuple(self.std), *like)


class RandomHorizontalFlip(Transform):
    """Left and right changed, with probability p. Not for digits: a 2 has only one way round."""

    def __init__(self, p: float = 0.5):
        self.p = p

    def __call__(self, image: Tensor) -> Tensor:
        return flip(image, -1) if rand(1).item() < self.p else image


class RandomCrop(Transform):
    """A part of (height, width) = `size` from a random place, after `padding` zeros around.

    Raises:
        ValueError: where the image is smaller than that.
    """

    def __init__(self, size: int | Sequence[int], padding: int = 0):
        self.size = (size, size) if isinstance(size, int) else tuple(size)
        self.padding = padding

    def __call__(self, image: Tensor) -> Tensor:
        image = constant_pad(image, (self.padding,) * 4) if self.padding else image
        place = []
        for n, length in zip(image.array.shape[-2:], self.size, strict=True):
            if n < length:
                raise ValueError(f"a crop of {self.size} from {tuple(image.array.shape[-2:])}")
            start = randint(n - length + 1, (1,)).item()
            place.append(slice(start, start + length))
        return image[(..., *place)]


NAMES = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]


def read_idx(path: Path) -> Tensor:
    """The tensor in an IDX file, also in a compressed one (.gz).

    Such a file begins with two zeros, a number for the type, and the number of dimensions. Their
    lengths follow, 4 bytes each, the highest first, and then the numbers themselves.

    Raises:
        ValueError: for a file that is damaged, or not an IDX file.
    """
    types = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in types:
                raise ValueError("it is not an IDX file")
            dtype = np.dtype(types[head[2]])
            shape = np.frombuffer(file.read(4 * head[3]), ">u4", head[3]).tolist()
            size = np.prod(shape, dtype=object) * dtype.itemsize
            # gzip makes 1000 bytes of one; images do not come near that. Look before reading.
            if size > 2**20 + 100 * path.stat().st_size:
                raise ValueError(f"it is far too short for the shape {shape}")
            array = np.frombuffer(file.read(size + 1), dtype).reshape(shape)
        return from_numpy(array.astype(dtype.newbyteorder("=")))
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"cannot read {path}: {error}") from error


class MNIST(Labelled):
    """Handwritten digits: images [28, 28], uint8, 60,000 to learn from and 10,000 to be tested.

    Args:
        root: the folder with the files, compressed or not. They may lie in MNIST/raw below it.
        download: fetch the files that are missing. Nothing is fetched unless you ask for it.
    Raises:
        FileNotFoundError: for missing files.
        RuntimeError: where a download fails.
        ValueError: for a file that is damaged, and for other numbers of images and labels.
    """

    mirrors = [
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ]
    # SHA-256 of the files, unpacked: images and labels to learn from, images and labels to test.
    checksums = [
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ]
    classes = [str(digit) for digit in range(10)]

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Any = None,
        target_transform: Any = None,
        download: bool = False,
    ):
        self.root, part = Path(root), slice(0, 2) if train else slice(2, 4)
        named = zip(NAMES[part], self.checksums[part], strict=True)
        images, labels = (read_idx(self.find(*each, download)) for each in named)
        if images.shape[:1] != labels.shape or images.ndim < 2:
            raise ValueError(f"{root} has images {images.shape} and labels {labels.shape}")
        super().__init__(images, labels.long(), transform, target_transform)

    def find(self, name: str, checksum: str, download: bool) -> Path:
        """Where the file lies, after it was fetched if it has to be."""
        raw = self.root / type(self).__name__ / "raw"
        for path in (folder / f"{name}{end}" for folder in (self.root, raw) for end in ("", ".gz")):
            if path.is_file():
                return path
        if not download:
            raise FileNotFoundError(f"{name} is not in {self.root}; download=True would fetch it")
        raw.mkdir(parents=True, exist_ok=True)
        with replacing(raw / name) as file:
            file.write(self.fetched(name, checksum))
        return raw / name

    def fetched(self, name: str, checksum: str) -> bytes:
        """What is in the file, from the first mirror that has the right one."""
        problems = []
        for mirror in self.mirrors:
            try:
                with urllib.request.urlopen(f"{mirror}{name}.gz", timeout=30) as answer:
                    content = gzip.decompress(answer.read())
            except (OSError, EOFError, zlib.error) as error:  # no network, no such file, not gzip
                problems.append(f"{mirror}: {error}")
                continue
            if hashlib.sha256(content).hexdigest() == checksum:
                return content
            problems.append(f"{mirror}: the checksum is wrong")
        raise RuntimeError(f"could not download {name}: {'; '.join(problems)}")


class FashionMNIST(MNIST):
    """Pieces of clothing, in the form of MNIST: a harder task for the same program."""

    mirrors = ["https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"]
    checksums = [
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ]
    classes = ["T-shirt/top", *"Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag".split()]
    classes += ["Ankle boot"]


if __name__ == "__main__":
    import argparse
    import io
    import tempfile
    import time

    from tinytorch.autograd.modes import no_grad
    from tinytorch.datasets.labelled import Digits, Spiral
    from tinytorch.nn.activation import ReLU
    from tinytorch.nn.class_loss import cross_entropy
    from tinytorch.nn.container import Sequential
    from tinytorch.nn.linear import Flatten, Linear
    from tinytorch.ops.random import manual_seed
    from tinytorch.optim.adam import Adam
    from tinytorch.optim.lr_scheduler.warmup import CosineAnnealingLR
    from tinytorch.random import get_rng_state, set_rng_state
    from tinytorch.serialization import load, save
    from tinytorch.utils.data.dataloader import DataLoader

    flags = argparse.ArgumentParser()
    flags.add_argument("--mnist", metavar="FOLDER", help="train on MNIST's files, too")
    mnist = flags.parse_args().mnist

    # An IDX file by hand: 2 images of 1 by 3 pixels.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tiny-idx3-ubyte")
        path.write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, *range(6)]))
        print(read_idx(path).tolist())  # -> [[[0, 1, 2]], [[3, 4, 5]]]
        # The head of this one lies: 16 million pixels, and 16 bytes of the file.
        path.write_bytes(bytes([0, 0, 8, 1, 1, 0, 0, 0, *range(8)]))
        try:
            read_idx(path)
        except ValueError as error:
            print(str(error).split(": ")[1])  # -> it is far too short for the shape [16777216]
        try:
            MNIST(folder)
        except FileNotFoundError as error:
            print(str(error).replace(folder, "FOLDER"))
            # -> train-images-idx3-ubyte is not in FOLDER; download=True would fetch it

    # What the transforms do.
    pixels = tensor([[0, 51, 255], [255, 102, 0]], dtype=uint8)
    image = ToTensor()(pixels)
    print(image.shape, image.dtype)  # -> tinytorch.Size([1, 2, 3]) tinytorch.float32
    print(Normalize([0.2], [0.1])(image))
    # -> tensor([[[-2.,  0.,  8.],
    # ->          [ 8.,  2., -2.]]])
    print(RandomHorizontalFlip(p=1.0)(image)[0, 0].tolist()[0])  # -> 1.0
    manual_seed(0)
    crops = {str(RandomCrop((1, 2))(pixels).tolist()) for _ in range(50)}
    print(sorted(crops))  # -> ['[[0, 51]]', '[[102, 0]]', '[[255, 102]]', '[[51, 255]]']
    twice = Compose([ToTensor(), Lambda(lambda image: image * 2)])
    print(twice(pixels)[0, 0, 1])  # -> tensor(0.4000)

    # The run. What it needs to go on is in one dictionary: state().
    class Run:
        parts = "net", "optimizer", "scheduler"

        def __init__(self, dataset, inputs=64, hidden=128, epochs=14, lr=5e-3):
            outputs = dataset.targets.max().item() + 1
            layers = Flatten(), Linear(inputs, hidden), ReLU(), Linear(hidden, outputs)
            self.net = Sequential(*layers)
            self.loader = DataLoader(dataset, batch_size=64, shuffle=True)
            self.optimizer = Adam(self.net.parameters(), lr=lr)
            self.scheduler = CosineAnnealingLR(self.optimizer, T_max=epochs)

        def train(self, until):
            while self.scheduler.last_epoch < until:
                for images, labels in self.loader:
                    loss = cross_entropy(self.net(images), labels)
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
                self.scheduler.step()
            return self

        def right(self, images, labels):
            with no_grad():
                return (self.net(images).argmax(1) == labels).float().mean().item()

        def state(self):
            state = {name: getattr(self, name).state_dict() for name in self.parts}
            return state | {"random": get_rng_state()}

        def resume(self, state):
            for name in self.parts:
                getattr(self, name).load_state_dict(state[name])
            set_rng_state(state["random"])
            return self

    start = time.perf_counter()
    scale = [ToTensor(), Normalize([0.3], [0.37])]
    moving = Compose([RandomCrop(8, padding=1), *scale])
    images, labels = next(iter(DataLoader(Digits(False, Compose(scale)), 360)))
    # The same 360, one pixel to the right.
    move = Lambda(lambda image: constant_pad(image, (1, -1)))
    moved, _ = next(iter(DataLoader(Digits(False, Compose([move, *scale])), 360)))

    manual_seed(0)
    plain = Run(Digits(transform=Compose(scale))).train(14)
    a, b = plain.right(images, labels), plain.right(moved, labels)
    print(f"the last 360 digits {a:.1%}, moved by a pixel {b:.1%}")  # -> ...
    manual_seed(0)
    run = Run(Digits(transform=moving)).train(7)
    save(run.state(), file := io.BytesIO())
    run.train(14)
    c, d = run.right(images, labels), run.right(moved, labels)
    print(f"trained on moved digits {c:.1%}, {d:.1%}")  # -> ...
    print(f"{time.perf_counter() - start:.1f} seconds")  # -> ...
    print("at least 85 % are right:", a > 0.85 and c > 0.85)  # -> at least 85 % are right: True
    print("a pixel, and a third is lost:", b < a * 2 / 3)  # -> a pixel, and a third is lost: True
    print("almost nothing is lost now:", d > c - 0.1)  # -> almost nothing is lost now: True

    # The run again, from its middle: another network, another seed, the same end.
    file.seek(0)
    manual_seed(99)
    again = Run(Digits(transform=moving)).resume(load(file)).train(14)
    pairs = zip(run.net.parameters(), again.net.parameters(), strict=True)
    print("bit for bit:", all((one == other).all().item() for one, other in pairs))
    # -> bit for bit: True

    # No straight line separates the arms of a spiral; a network does.
    manual_seed(0)
    spiral, test = Spiral(), Spiral(train=False)
    bent = Run(spiral, inputs=2, epochs=200, lr=0.01).train(200)
    print("arms of the spiral told apart:", bent.right(test.data, test.targets) > 0.95)
    # -> arms of the spiral told apart: True

    if mnist:
        start = time.perf_counter()
        scale = Lambda(lambda images: images / 255)
        train, test = MNIST(mnist), MNIST(mnist, train=False)
        train.data, test.data = scale(train.data), scale(test.data)
        run = Run(train, inputs=784, hidden=256, epochs=10, lr=2e-3).train(10)
        right = run.right(test.data, test.targets)
        print(f"MNIST: {right:.2%} in {time.perf_counter() - start:.0f} s")

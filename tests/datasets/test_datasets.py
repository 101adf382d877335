"""The datasets: what is in them, how IDX files are read, and what a download believes."""

import gzip
import hashlib
import io
import tracemalloc

import numpy as np
import pytest

import tinytorch
from tinytorch.datasets import CIFAR10, MNIST, Digits, FashionMNIST, Spiral, transforms
from tinytorch.datasets import mnist as mnist_module
from tinytorch.datasets.mnist import NAMES, read_idx
from tinytorch.utils.data import DataLoader


def idx(array, code):
    array = np.asarray(array)
    lengths = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, code, array.ndim]) + lengths + array.tobytes()


def test_digits():
    train, test = Digits(), Digits(train=False)
    assert (len(train), len(test)) == (1437, 360)
    image, label = train[0]
    assert image.shape == (8, 8) and image.dtype is tinytorch.float32 and label == 0
    assert type(label) is int
    images, labels = tinytorch.datasets.load_digits()
    assert tinytorch.equal(test[-1][0], images[-1]) and test[359][1] == labels[-1].item()
    with pytest.raises(IndexError):
        train[1437]
    assert sum(1 for _ in test) == 360


def test_spiral():
    train, again, test = Spiral(), Spiral(), Spiral(train=False)
    assert train.data.shape == (300, 2) and train.data.dtype is tinytorch.float32
    assert train.targets.unique(return_counts=True)[1].tolist() == [100] * 3
    assert tinytorch.equal(train.data, again.data)
    assert 0 < (train.data - test.data).abs().max().item() < 0.2
    assert len(Spiral(classes=5, per_class=7)) == 35
    # Each point of the test set lies next to a point of its own arm.
    apart = ((test.data[:, None] - train.data[None]) ** 2).sum(2)
    right = train.targets[apart.argmin(1)] == test.targets
    assert right.float().mean().item() > 0.95


def test_batches_and_items_are_the_same():
    for dataset in (Digits(), Digits(transform=transforms.ToTensor()), Spiral()):
        images, labels = dataset.__getbatch__([3, 1, 4])
        for image, label, number in zip(images, labels, [3, 1, 4], strict=True):
            assert tinytorch.equal(image, dataset[number][0])
            assert label.item() == dataset[number][1]
        assert labels.dtype is tinytorch.int64


def test_transforms_are_applied():
    dataset = Digits(transform=lambda image: image * 0, target_transform=lambda label: label + 10)
    image, label = dataset[5]
    assert image.abs().sum().item() == 0 and label == 15


def test_a_data_loader_takes_them():
    images, labels = next(iter(DataLoader(Digits(transform=transforms.ToTensor()), batch_size=16)))
    assert images.shape == (16, 1, 8, 8) and labels.shape == (16,)


TYPES = [(8, ">u1"), (9, ">i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")]


@pytest.mark.parametrize("code, dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (2, 3, 4)])
def test_idx_files(tmp_path, code, dtype, shape):
    array = np.array(np.arange(np.prod(shape, dtype=int)).reshape(shape) - 3, dtype)
    (tmp_path / "plain").write_bytes(idx(array, code))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(idx(array, code)))
    for name in ("plain", "packed.gz"):
        x = read_idx(tmp_path / name)
        assert x.shape == shape and x.tolist() == array.tolist()
        assert x.dtype.name == array.dtype.newbyteorder("=").name
        x.zero_()  # the memory is its own


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08",
        b"\0\0\x08\x01",
        b"\0\0\x08\x01\0\0\0\x02a",
        b"\0\0\x08\x01\0\0\0\x02abc",
        b"\0\0\x07\x01\0\0\0\x01a",
        b"PK\x08\x01\0\0\0\x01a",
        b"\0\0\x08\xff" + b"\xff" * 1020,
        b"\0\0\x08\x03\0\0",
        b"\0\0\x08\x41" + b"\0\0\0\1" * 65 + b"a",
        b"\0\0\x0e\x04\0\0\0\0" + b"\xff" * 12,
        b"\0\0\x0c\x01\0\0\0\2" + bytes(7),
    ],
)
def test_files_that_are_no_idx_files(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "file.gz").write_bytes(gzip.compress(content))
    for name in ("file", "file.gz"):
        with pytest.raises(ValueError, match=f"cannot read .*{name}: "):
            read_idx(tmp_path / name)


def test_damaged_gzip_files_give_one_kind_of_error(tmp_path):
    whole = gzip.compress(idx(np.arange(5000, dtype=np.uint8) % 251, 8))
    middle = len(whole) // 2
    for content in (
        b"hello",
        whole[:-9],
        whole[:middle],
        whole[:-6] + bytes(6),
        whole[:middle] + b"\xff" * 8 + whole[middle + 8 :],
    ):
        (tmp_path / "file.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"cannot read .*file\.gz: "):
            read_idx(tmp_path / "file.gz")


@pytest.mark.parametrize("shape", [(1,), (2**28,)])
def test_a_small_file_does_not_fill_the_memory(tmp_path, shape):
    """256 MB of zeros in 260 KB, once with a head that admits it."""
    content = b"\0\0\x08\x01" + shape[0].to_bytes(4) + bytes(2**28)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(content, 1))
    del content
    tracemalloc.start()
    with pytest.raises(ValueError, match="cannot read"):
        read_idx(tmp_path / "bomb.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**23


# A small MNIST: two images to learn from, one to be tested.
FILES = [
    idx(np.arange(2 * 28 * 28).reshape(2, 28, 28).astype(np.uint8), 8),
    idx(np.array([7, 3], np.uint8), 8),
    idx(np.zeros((1, 28, 28), np.uint8), 8),
    idx(np.array([9], np.uint8), 8),
]


class Small(MNIST):
    mirrors = ["first/", "second/"]
    checksums = [hashlib.sha256(content).hexdigest() for content in FILES]


@pytest.mark.parametrize("labels", [5, ()])
def test_images_and_labels_must_be_as_many(tmp_path, labels):
    for name, array in zip(NAMES, (np.zeros((10, 28, 28)), np.zeros(labels)), strict=False):
        (tmp_path / name).write_bytes(idx(array.astype(np.uint8), 8))
    with pytest.raises(ValueError, match=r"images .*\[10, 28, 28\]\) and labels"):
        MNIST(tmp_path)


@pytest.mark.parametrize("folder", [".", "Small/raw"])
@pytest.mark.parametrize("packed", [False, True])
def test_mnist_from_a_folder(tmp_path, folder, packed):
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for name, content in zip(NAMES, FILES, strict=True):
        path = tmp_path / folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    train, test = Small(tmp_path), Small(str(tmp_path), train=False)
    assert (len(train), len(test)) == (2, 1)
    assert train[1][1] == 3 and train[0][0].dtype is tinytorch.uint8
    assert train.data.shape == (2, 28, 28) and train.targets.tolist() == [7, 3]
    scaled = Small(tmp_path, transform=transforms.ToTensor())[0][0]
    assert scaled.shape == (1, 28, 28) and scaled.max().item() == 1.0


def test_nothing_is_downloaded_unless_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(mnist_module.urllib.request, "urlopen", None)
    for dataset in (MNIST, FashionMNIST):
        with pytest.raises(FileNotFoundError, match="download=True"):
            dataset(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_download_takes_the_first_right_file(tmp_path, monkeypatch):
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        mirror, name = url.removesuffix(".gz").split("/")
        content = FILES[NAMES.index(name)]
        if mirror == "first":
            if "images" in name:
                raise OSError("no answer")
            content = content[:-1] + b"\x09"  # another label
        return io.BytesIO(gzip.compress(content))

    monkeypatch.setattr(mnist_module.urllib.request, "urlopen", urlopen)
    assert Small(tmp_path, download=True).targets.tolist() == [7, 3]
    assert [url.split("/")[0] for url in asked] == ["first", "second", "first", "second"]
    assert sorted(path.name for path in (tmp_path / "Small/raw").iterdir()) == sorted(NAMES[:2])
    assert len(Small(tmp_path)) == 2  # and now they are there
    asked.clear()
    Small(tmp_path, download=True)
    assert asked == []


def test_a_download_that_fails_says_why_and_leaves_no_file(tmp_path, monkeypatch):
    def urlopen(url, timeout):
        if url.startswith("first"):
            return io.BytesIO(b"<html>not found</html>")
        return io.BytesIO(gzip.compress(b"something else"))

    monkeypatch.setattr(mnist_module.urllib.request, "urlopen", urlopen)
    with pytest.raises(RuntimeError, match="first/: Not a gzipped.*second/: the checksum is wrong"):
        Small(tmp_path, download=True)
    assert list((tmp_path / "Small/raw").iterdir()) == []


def test_names_and_checksums():
    assert NAMES[0] == "train-images-idx3-ubyte" and NAMES[3] == "t10k-labels-idx1-ubyte"
    for dataset in (MNIST, FashionMNIST):
        assert [len(checksum) for checksum in dataset.checksums] == [64] * 4
        assert len(dataset.classes) == 10
        assert all(mirror.startswith("https://") for mirror in dataset.mirrors)


def cifar_file(path, records):
    np.asarray(records, np.uint8).tofile(path)


def test_cifar10_reads_planes_as_pixels(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(1, 6):
        records = rng.integers(0, 256, (4, 3073), dtype=np.uint8)
        records[:, 0] = i
        cifar_file(tmp_path / f"data_batch_{i}.bin", records)
    data = CIFAR10(tmp_path)
    assert len(data) == 20 and data.targets.tolist() == [i for i in range(1, 6) for _ in range(4)]
    image, label = data[19]
    assert label == 5 and image.shape == (32, 32, 3) and image.dtype is tinytorch.uint8
    planes = records[3, 1:].reshape(3, 32, 32)
    np.testing.assert_array_equal(image.numpy(), np.moveaxis(planes, 0, 2))


def test_cifar10_refuses_what_is_damaged(tmp_path):
    with pytest.raises(FileNotFoundError, match="test_batch.bin is not in"):
        CIFAR10(tmp_path, train=False)
    for records, reason in (
        (np.zeros(3073 * 2 - 1), "not a multiple of 3073"),
        (np.zeros(0), "not a multiple of 3073"),
        (np.full(3073, 10), "class 10"),
    ):
        cifar_file(tmp_path / "test_batch.bin", records)
        with pytest.raises(ValueError, match=reason):
            CIFAR10(tmp_path, train=False)

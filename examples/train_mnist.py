"""Trains a network on MNIST or Fashion-MNIST: python examples/train_mnist.py --data FOLDER

It shows loss and speed as it goes, tests after each epoch, and with --checkpoint FILE writes all
that a run needs to go on. Started again with the same options and --resume it goes on from there,
bit for bit. --download fetches the files into the folder; --plot FILE draws the losses (with
matplotlib); tqdm's progress bar is used where that package is installed. Begin with
train_digits.py, which is the same in 40 lines.
"""

import argparse
import importlib.util
import os
import sys
import time
from pathlib import Path

# The products here are small: one thread is fastest. More threads wait for each other, and on a
# machine that is busy with other work the run then takes many times as long. NumPy reads this when
# it is loaded; set it yourself to choose another number.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import tinytorch
from tinytorch import nn
from tinytorch.datasets import MNIST, FashionMNIST
from tinytorch.nn.functional import cross_entropy
from tinytorch.optim import Adam
from tinytorch.optim.lr_scheduler import CosineAnnealingLR
from tinytorch.utils.data import DataLoader

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None


class Progress:
    """Shows how far an epoch is: by tqdm, or by a line that is written again and again."""

    def __init__(self, name, batches, images):
        self.name, self.batches, self.images = name, batches, images
        self.start, self.done, self.shown = time.perf_counter(), 0, 0.0
        self.bar = None if tqdm is None else tqdm(total=batches, desc=name, leave=False)

    def update(self, loss):
        self.done += 1
        if self.bar is not None:
            self.bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            self.bar.update()
        elif sys.stderr.isatty() and time.perf_counter() - self.shown > 0.1:
            self.shown = time.perf_counter()
            print(
                f"\r{self.name} {self.done}/{self.batches}  {self.text(loss)}  ",
                end="",
                file=sys.stderr,
            )

    def text(self, loss):
        speed = self.images * self.done / self.batches / (time.perf_counter() - self.start)
        return f"loss {loss:.4f}  {speed:,.0f} images/s"

    def close(self):
        if self.bar is not None:
            self.bar.close()
        elif sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)


def arguments():
    parser = argparse.ArgumentParser(description="Trains a network on MNIST.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the IDX files")
    parser.add_argument("--fashion", action="store_true", help="clothes instead of digits")
    parser.add_argument("--download", action="store_true", help="fetch the files that are missing")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 ...")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare batches")
    parser.add_argument("--checkpoint", type=Path, help="file to write after each epoch")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--stop-after", type=int, metavar="EPOCH", help="and --resume later")
    parser.add_argument("--plot", type=Path, help="draw the losses into this file")
    options = parser.parse_args()
    if options.resume and (options.checkpoint is None or not options.checkpoint.is_file()):
        parser.error("--resume needs --checkpoint FILE, and a file that is there")
    for file in (options.checkpoint, options.plot):  # better now than after an hour
        if file is not None and not file.parent.is_dir():
            parser.error(f"there is no folder {file.parent} for {file.name}")
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install matplotlib")
    if not options.download and not options.data.is_dir():
        parser.error(f"there is no folder {options.data}: --download makes it, with the files")
    return options


def settings(options):
    """What has to stay as it was if a run is to go on as it began."""
    names = "fashion", "epochs", "batch_size", "lr", "seed"
    return {name: getattr(options, name) for name in names}


def datasets(options):
    """The images to learn from and the images to be tested, as numbers around 0."""
    kind = FashionMNIST if options.fashion else MNIST
    try:
        parts = [kind(options.data, train, download=options.download) for train in (True, False)]
    except FileNotFoundError as error:
        sys.exit(f"{str(error).split(';')[0]}: --download fetches it")
    except (RuntimeError, ValueError) as error:  # no network, or a file that is damaged
        sys.exit(str(error))
    pixels = parts[0].data.float()
    mean, std = pixels.mean(), pixels.std()
    for part in parts:
        part.data = (part.data.float() - mean) / std  # all at once, and not in each epoch again
    return parts


def network():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 256),
        nn.ReLU(),
        nn.Linear(256, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def train(model, loader, optimizer, device, progress):
    """One epoch. Returns the loss of each batch."""
    model.train()
    losses = []
    for images, labels in loader:
        loss = cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        progress.update(losses[-1])
    progress.close()
    return losses


@tinytorch.no_grad()
def evaluate(model, loader, device):
    """Which part of the images is classified correctly."""
    model.eval()
    right = 0
    for images, labels in loader:
        right += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
    return right / len(loader.dataset)


def plot(losses, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    window = max(len(losses) // 100, 1)
    means = [
        sum(losses[start : start + window]) / len(losses[start : start + window])
        for start in range(0, len(losses), window)
    ]
    plt.semilogy([start * window for start in range(len(means))], means)
    plt.xlabel("batch")
    plt.ylabel("loss")
    plt.savefig(path)


def main():
    options = arguments()
    tinytorch.manual_seed(options.seed)
    train_set, test_set = datasets(options)
    loader = DataLoader(
        train_set, options.batch_size, shuffle=True, num_workers=options.workers, drop_last=True
    )
    test_loader = DataLoader(test_set, 1000)
    model = network().to(options.device)
    optimizer = Adam(model.parameters(), lr=options.lr)
    scheduler = CosineAnnealingLR(optimizer, T_max=options.epochs)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    losses = []

    if options.resume:
        state = tinytorch.load(options.checkpoint, map_location=options.device)
        for name, value in settings(options).items():
            if value != state["settings"][name]:
                flag = "--" + name.replace("_", "-")
                sys.exit(f"the run began with {flag} {state['settings'][name]}, not {value}")
        for name, part in parts.items():
            part.load_state_dict(state[name])
        # The CPU's generator shuffles the images, wherever the network is.
        tinytorch.set_rng_state(state["random"].cpu())
        losses = state["losses"]
        print(f"goes on after epoch {scheduler.last_epoch} of {options.checkpoint}")

    start, last = time.perf_counter(), options.stop_after or options.epochs
    saved = scheduler.last_epoch if options.resume else 0
    try:
        for epoch in range(scheduler.last_epoch + 1, last + 1):
            progress = Progress(f"epoch {epoch:2}", len(loader), len(train_set))
            new = train(model, loader, optimizer, options.device, progress)
            scheduler.step()
            losses += new
            text = progress.text(sum(new) / len(new))
            right = evaluate(model, test_loader, options.device)
            print(f"epoch {epoch:2}  {text}  test {right:.2%}", flush=True)
            if options.checkpoint is not None:
                state = {name: part.state_dict() for name, part in parts.items()}
                state |= {"random": tinytorch.get_rng_state(), "losses": losses}
                state |= {"settings": settings(options)}
                tinytorch.save(state, options.checkpoint)
                saved = epoch
    except KeyboardInterrupt:
        if saved:
            sys.exit(f"\nstopped; the same command with --resume goes on after epoch {saved}")
        sys.exit("\nstopped; nothing is saved: --checkpoint FILE writes a file after each epoch")
    print(f"{time.perf_counter() - start:.1f} seconds")
    if options.plot is not None:
        plot(losses, options.plot)


if __name__ == "__main__":
    main()

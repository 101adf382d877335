"""Says at the end how many samples were compared, and why others were not."""

import sys

try:
    import torch
except ImportError:
    pass  # these tests are skipped
else:
    # PyTorch's samples forbid what programs do: torch.backends.cudnn.benchmark = True.
    torch.backends.disable_global_flags = lambda: None


def pytest_terminal_summary(terminalreporter):
    samples = sys.modules.get("tests.parity.samples")
    if samples is None or not samples.compared:
        return
    total, out = sum(samples.compared.values()), sum(samples.left_out.values())
    terminalreporter.write_line(
        f"parity: {total} samples of {len(samples.compared)} operations compared, {out} left out"
    )
    for reason, count in samples.left_out.most_common():
        terminalreporter.write_line(f"  {count:5d}  {reason}")

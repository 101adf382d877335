"""Memory of one training step, measured in a process of its own: peak and minor page faults."""

import json
import subprocess
import sys
from pathlib import Path

# What the child runs. VmHWM is the highest amount of memory that the process ever held; writing 5
# to clear_refs sets it back (Linux), so that imports do not count.
CHILD = """
import json, resource, sys
from benchmarks.harness import one_thread
one_thread()
import importlib
from benchmarks import programs
library = importlib.import_module(sys.argv[1])
if sys.argv[1] == "torch":
    library.set_num_threads(1)
step = getattr(programs, sys.argv[2])(library, int(sys.argv[3]))

steps = 100 if sys.argv[2] == "mlp" else 20

def status(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1])

for _ in range(20):
    step()
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(steps):
    step()
faults = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults) / steps
print(json.dumps({"peak_kib": status("VmHWM"), "before_kib": before, "faults": faults}))
"""


def measure(library: str, program: str, batch: int) -> dict:
    """Peak memory (KiB) and minor faults per step of a program in a fresh process."""
    root = Path(__file__).resolve().parent.parent
    answer = subprocess.run(
        [sys.executable, "-c", CHILD, library, program, str(batch)],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(answer.stdout)


def report(with_torch: bool) -> None:
    """Prints one line for each library."""
    for program, batch in (("mlp", 512), ("cnn", 64)):
        for library in ["tinytorch"] + ["torch"] * with_torch:
            found = measure(library, program, batch)
            print(
                f"memory, {program} batch {batch}, {library:<10} "
                f"peak {found['peak_kib'] / 1024:7.1f} MiB "
                f"(before {found['before_kib'] / 1024:.1f}), "
                f"{found['faults']:.1f} minor faults per step"
            )

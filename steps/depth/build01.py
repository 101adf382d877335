"""Step build01: Compiling C and calling it from Python

Steps expressions01 to fuse13 end with kernels: loops, with an expression in C for each operation.
The runs from here on write them as text in C, and later in CUDA. But what does a program of Python
do with a text in C? A C compiler turns it into a library of machine code, and ctypes, a module of
Python, loads the library and calls its functions:

    text  --cc -shared-->  a library on the disk  --ctypes.CDLL-->  library.square(3.0)

Most machines have a compiler: `cc`, or the command in the environment variable CC. For the others,
`pip install ziglang` provides one.

When the compiler fails, it describes the error on its standard error. The first lines of that text
become the message of a CompilerError. The caller can catch it and go on without C.

The trap: ctypes does not know the types of a C function. It takes the result for an int, and
refuses a Python float as an argument. So set argtypes and restype before the first call.

(PyTorch's Inductor calls g++ for a CPU, and loads the library with ctypes too.)

New: CompilerError, find_compiler, run_compiler, ENDING, build.
Try: leave the line with argtypes and restype out of the demo, and call library.square(3).
"""

import ctypes
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


class CompilerError(RuntimeError):
    """There is no compiler, or it fails, or its output cannot be written. The text says
    which; the program can run without."""


def find_compiler() -> list[str]:
    """The command of a C compiler: $CC, or the system's `cc`, or the one of the package ziglang.

    Raises:
        CompilerError: there is none.
    """
    chosen = shlex.split(os.environ.get("CC", ""))
    if chosen:
        return chosen
    if shutil.which("cc"):
        return ["cc"]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise CompilerError(
        "there is no C compiler: neither $CC, nor 'cc', nor the Python package ziglang, "
        "which has one (pip install ziglang)"
    )


def run_compiler(command: Sequence[str]) -> str:
    """What a command of the compiler writes.

    Raises:
        CompilerError: it cannot be started, fails, or takes longer than five minutes.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=300
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError(f"the C compiler '{command[0]}' does not run: {error}") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[:8]
        message = "\n".join([f"the C compiler '{command[0]}' failed:", *lines])
        raise CompilerError(message)
    return done.stdout


ENDING = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


def build(source: str, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """The library of C source text.

    Raises:
        CompilerError: there is no compiler, or it fails.
    """
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        text, path = Path(folder, "kernels.c"), Path(folder, f"kernels{ENDING}")
        text.write_text(source)
        position = [] if os.name == "nt" else ["-fPIC"]
        # The libraries that are linked (-lm) have to stand behind the source.
        run_compiler([*compiler, "-shared", *position, "-o", str(path), str(text), *flags])
        return ctypes.CDLL(str(path))


if __name__ == "__main__":
    import types

    def messages(function):
        try:
            function()
        except CompilerError as error:
            print(str(error)[:64])

    # Which compiler: the one of CC, the system's, the one of ziglang, none.
    os.environ.pop("CC", None)
    paths, os.environ["PATH"] = os.environ["PATH"], ""
    sys.modules["ziglang"] = None
    messages(find_compiler)
    # -> there is no C compiler: neither $CC, nor 'cc', nor the Python pa
    sys.modules["ziglang"] = types.ModuleType("ziglang")
    sys.modules["ziglang"].__spec__ = importlib.util.spec_from_loader("ziglang", None)
    print(find_compiler()[1:])  # -> ['-m', 'ziglang', 'cc']
    del sys.modules["ziglang"]
    os.environ["PATH"], os.environ["CC"] = paths, "/nowhere/cc -pipe"
    print(find_compiler())  # -> ['/nowhere/cc', '-pipe']
    messages(lambda: build("int one;"))
    # -> the C compiler '/nowhere/cc' does not run: [Errno 2] No such fil
    del os.environ["CC"]
    if shutil.which("cc"):
        print(find_compiler())  # -> ...
        library = build("float square(float x) { return x * x; }\n", ["-O3", "-lm"])
        library.square.argtypes, library.square.restype = [ctypes.c_float], ctypes.c_float
        print(library.square(3))  # -> 9.0
        try:
            build("float square(float x) { return y * y; }\n")
        except CompilerError as error:
            print("error" in str(error))  # -> True

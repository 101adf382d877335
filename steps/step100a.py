"""Step 100a: Compiling C and calling it from Python

Topic 99 ends with kernels: loops, with an expression in C for each operation. This topic writes
them as text in C, and later in CUDA. But what does a program of Python do with a text in C? A C
compiler turns it into a library of machine code, and ctypes, a module of Python, loads the library
and calls its functions:

    text  --cc -shared-->  a library on the disk  --ctypes.CDLL-->  library.square(3.0)

Most machines have a compiler: `cc`, or the command in the environment variable CC. For the others,
`pip install ziglang` provides one.

Compiling takes 0.1 s or more, and a program would pay that at each start. But the same text always
gives the same library. So the library is kept in a cache folder, and its file name is a hash of all
that it depends on: the text, the flags and the command. If the file exists, `build` loads it.

When the compiler fails, it describes the error on its standard error. The first lines of that text
become the message of a CompilerError. The caller can catch it and go on without C.

The trap: ctypes does not know the types of a C function. It takes the result for an int, and
refuses a Python float as an argument. So set argtypes and restype before the first call.

New: CompilerError, find_compiler, run_compiler, cache_folder, digest_of, ENDING, build.
Try: leave the line with argtypes and restype out of the demo, and call library.square(3).
"""

import ctypes
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
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


def cache_folder() -> Path:
    """Where libraries are kept: $TINYTORCH_CACHE, or `tinytorch` among the user's caches."""
    chosen = os.environ.get("TINYTORCH_CACHE")
    if chosen:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME")
    return Path(caches or os.path.expanduser("~/.cache"), "tinytorch")


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


ENDING = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


def build(source: str, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """The library of C source text. What was compiled once is taken from the cache.

    Raises:
        CompilerError: there is no compiler, or it fails.
    """
    compiler = find_compiler()
    name = digest_of("\0".join((source, *flags, *compiler)).encode())[:32]
    path = cache_folder() / (name + ENDING)
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = path.with_suffix(".c")
        text.write_text(source)
        position = [] if os.name == "nt" else ["-fPIC"]
        # The libraries that are linked (-lm) have to stand behind the source.
        run_compiler([*compiler, "-shared", *position, "-o", str(path), str(text), *flags])
    return ctypes.CDLL(str(path))


if __name__ == "__main__":
    import tempfile
    import time
    import types

    folder = tempfile.TemporaryDirectory()
    os.environ.pop("CC", None)
    os.environ["XDG_CACHE_HOME"] = folder.name
    os.environ.pop("TINYTORCH_CACHE", None)
    print(cache_folder() == Path(folder.name, "tinytorch"))  # -> True
    os.environ["TINYTORCH_CACHE"] = str(Path(folder.name, "mine"))
    print(cache_folder().name)  # -> mine

    def messages(function):
        try:
            function()
        except CompilerError as error:
            print(str(error)[:64])

    # Which compiler: the one of CC, the system's, the one of ziglang, none.
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

        source = "float square(float x) { return x * x; }\n"
        for _ in range(2):
            start = time.perf_counter()
            library = build(source, ["-O3", "-lm"])
            print(f"{time.perf_counter() - start:.4f} s")  # -> ...
        library.square.argtypes, library.square.restype = [ctypes.c_float], ctypes.c_float
        print(library.square(3))  # -> 9.0
        print(sorted(path.suffix for path in cache_folder().iterdir()))  # -> ...
        try:
            build("float square(float x) { return y * y; }\n")
        except CompilerError as error:
            print("error" in str(error))  # -> True
    folder.cleanup()

"""Step build02: A cache for compiled libraries

Compiling takes 50 ms for a line of C, and seconds for the kernels of a network. With step build01,
a program would pay that again at each start. But the same text always gives the same library. So
the library is kept in a cache folder, and its file name is a hash of all that it depends on:

    sha256(text, flags, command of the compiler)  ->  ~/.cache/tinytorch/3f9a...07.so

If the file exists, `build` loads it, and does not start the compiler. No list of what is in the
cache is needed, since another text has another name. The folder can be deleted at any time.

The trap: a hash of the text alone would give one library to two sets of flags, such as -O0 and -O3.
The parts are joined with a character that none of them contains; else ("ab", "c") and ("a", "bc")
would be the same.

(PyTorch: Inductor's FxGraphCache and its folder, TORCHINDUCTOR_CACHE_DIR.)

New: cache_folder, digest_of. Changed: build.
Try: leave `*flags` out of the hash. Which line of the demo goes wrong?
"""

import ctypes
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
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
    folder = tempfile.TemporaryDirectory()
    os.environ["XDG_CACHE_HOME"] = folder.name
    os.environ.pop("TINYTORCH_CACHE", None)
    print(cache_folder() == Path(folder.name, "tinytorch"))  # -> True
    os.environ["TINYTORCH_CACHE"] = str(Path(folder.name, "mine"))
    print(cache_folder().name)  # -> mine

    if shutil.which("cc"):
        source = "int answer(void) { return SIZE; }\n"
        for flag in ("-DSIZE=41", "-DSIZE=42", "-DSIZE=42"):
            start = time.perf_counter()
            library = build(source, [flag])
            print(library.answer(), f"{time.perf_counter() - start:.4f} s")
        # -> 41 ... s
        # -> 42 ... s
        # -> 42 ... s
        print(sorted(path.suffix for path in cache_folder().iterdir()))  # -> ...
    folder.cleanup()

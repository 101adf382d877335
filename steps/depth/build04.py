"""Step build04: Fallbacks when compiling fails

Three failures still end a program that could go on:

    the cache is read-only, or the disk is full         another folder can be used
    the compiler lacks -fopenmp (Apple's clang, zig)    the code is right without it, and slower
    the compiler fails for another reason               the program can run without C

1. A folder that cannot be written is replaced by a temporary one, deleted when the process ends.
2. `LEFT_OUT` lists flags to leave out, attempt by attempt. `first_try` remembers which attempt
   succeeded with a compiler, so that later texts begin there.
3. Every other failure becomes a CompilerError.

The trap: a full disk looks like a failing compiler, because the compiler reports in its own words
that it cannot write its output. So after each failure `compile_to` writes a file itself. If that
fails too, the disk was the problem. And when several attempts fail, the first message is reported:
the last one may only speak of missing flags.

PyTorch's compiler raises an error when there is no C compiler.

New: temporary_folder, LEFT_OUT, first_try. Changed: compile_to, build.
Try: make the cache folder read-only (chmod 500), and compile. Where is the library?
"""

import atexit
import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
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


@functools.cache
def version_of(compiler: tuple[str, ...]) -> str:
    """The compiler's version, and the processor: with -march=native, a library is for this one."""
    about = Path("/proc/cpuinfo")  # of Linux
    lines = about.read_text().splitlines() if about.exists() else []
    features = (line for line in lines if line.startswith(("flags", "Features")))
    processor = next(features, platform.processor())
    return f"{run_compiler((*compiler, '--version'))} {platform.platform()} {processor}"


def cache_folder() -> Path:
    """Where libraries are kept: $TINYTORCH_CACHE, or `tinytorch` among the user's caches."""
    chosen = os.environ.get("TINYTORCH_CACHE")
    if chosen:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME")
    return Path(caches or os.path.expanduser("~/.cache"), "tinytorch")


@functools.cache
def temporary_folder() -> Path:
    """In place of the cache where that cannot be used. It goes when the process ends."""
    folder = tempfile.mkdtemp(prefix="tinytorch-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_ours(path: Path, mask: int = 0o022) -> bool:
    """Whether a file or folder is this user's, or the system's, and no other may write to it (those
    of `mask`). Windows has no such modes."""
    status = path.stat()
    return os.name == "nt" or (status.st_uid in (os.getuid(), 0) and not status.st_mode & mask)


def prepare(folder: Path) -> None:
    """Makes the folder of the cache.

    Raises:
        PermissionError: others may write to it. What they put there would run as this user.
        OSError: it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_ours(folder):
        text = f"others may write to the compile cache {folder}"
        warnings.warn(f"{text}: it is not used. Take their right, or name another", stacklevel=3)
        raise PermissionError(text)


def clear(folder: Path) -> None:
    """Removes what compilations that were killed have left."""
    for left in folder.glob("building-*"):
        with contextlib.suppress(OSError):  # another process has removed it
            if time.time() - left.stat().st_mtime > 3600:  # no compilation takes so long
                shutil.rmtree(left)


def cached(path: Path) -> bool:
    """Whether the library at `path` is there, whole. Loading half a file would end the process."""
    try:
        whole = path.with_suffix(".sha256").read_text() == digest_of(path.read_bytes())
        return whole and is_ours(path, 0o002)
    except (OSError, UnicodeDecodeError):
        return False


ENDING = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
# Flags that a compiler may lack: the code is right without them, and slower. Which of the tuples a
# compiler needs is known once it has compiled something.
LEFT_OUT = ((), ("-fopenmp",), ("-fopenmp", "-march=native"))
first_try: dict[tuple[str, ...], int] = {}


def compile_to(path: Path, compiler: Sequence[str], flags: Sequence[str], source: str) -> None:
    """Compiles `source` to a library at `path`; source and checksum are put beside it.

    All is written in a folder of its own and then moved. Another process, which may be doing the
    same, sees no file or a whole one, also when this process is killed between.

    Raises:
        OSError: the folder cannot be written into.
        CompilerError: the compiler fails.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    clear(path.parent)
    with tempfile.TemporaryDirectory(prefix="building-", dir=path.parent) as folder:
        text, library = Path(folder, "kernels.c"), Path(folder, path.name)
        text.write_text(source)
        position = [] if os.name == "nt" else ["-fPIC"]
        command = [*compiler, "-shared", *position, "-o", str(library), str(text)]
        problem = None
        attempts = range(first_try.get(tuple(compiler), 0), len(LEFT_OUT))
        for attempt in attempts:
            try:
                # The libraries that are linked (-lm) have to stand behind the source.
                run_compiler([*command, *(x for x in flags if x not in LEFT_OUT[attempt])])
                first_try[tuple(compiler)] = attempt
                break
            except CompilerError as error:
                # Is it the disk? Then this raises an OSError. Is it the source? Then the first
                # message says more than the last.
                Path(folder, "space").write_bytes(bytes(2**20))
                problem = problem or error
        else:
            raise problem
        checksum = Path(folder, "checksum")
        checksum.write_text(digest_of(library.read_bytes()))
        os.replace(text, path.with_suffix(".c"))
        os.replace(library, path)
        os.replace(checksum, path.with_suffix(".sha256"))


def build(source: str, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """The library of C source text. What was compiled once is taken from the cache.

    Raises:
        CompilerError: there is no compiler, or it fails, or there is no place to write to.
    """
    compiler = find_compiler()
    version = version_of(tuple(compiler))
    name = digest_of("\0".join((source, *flags, *compiler, version)).encode())[:32]
    try:
        path = cache_folder() / (name + ENDING)
        prepare(path.parent)
        if not cached(path):
            compile_to(path, compiler, flags, source)
    except OSError:  # the folder is read-only, or full, or others may write to it
        try:
            path = temporary_folder() / (name + ENDING)
            if not cached(path):
                compile_to(path, compiler, flags, source)
        except OSError as error:
            raise CompilerError(f"no place for a compiled library: {error}") from error
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompilerError(f"the compiled library cannot be loaded: {error}") from error


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    REAL = find_compiler()
    source = "int answer(void) { return 42; }\n"
    os.environ["TINYTORCH_CACHE"] = str(Path(folder, "cache"))

    def pretend(name, body):
        """Replaces the compiler: runs `body`, then the real compiler."""
        path = Path(folder, name)
        real = shlex.join(REAL)
        path.write_text(f'#!/bin/sh\n{body}\nexec {real} "$@"\n')
        path.chmod(0o700)
        return str(path)

    # A compiler without -fopenmp: the second attempt succeeds, and later texts begin with it.
    no_openmp = 'case "$*" in *-fopenmp*) echo "no omp.h" >&2; exit 1;; esac'
    os.environ["CC"] = pretend("mycc", no_openmp)
    print(build(source, ["-fopenmp"]).answer(), list(first_try.values()))  # -> 42 [1]
    try:
        build("int answer(void) { return forty_two; }\n", ["-fopenmp"])
    except CompilerError as error:
        print("forty_two" in str(error))  # -> True

    # The cache "folder" is a file: the library goes to the temporary folder.
    Path(folder, "file").write_text("")
    os.environ["TINYTORCH_CACHE"] = str(Path(folder, "file"))
    print(build(source).answer(), len(list(temporary_folder().iterdir())))  # -> 42 3

    def message():
        try:
            build(source)
        except CompilerError as error:
            text = str(error).replace(str(temporary_folder()), "TEMPORARY")
            print(text.replace(folder, "FOLDER").splitlines()[0][:70])

    shutil.rmtree(temporary_folder())
    temporary_folder().write_text("")  # this folder fails, too
    message()  # -> no place for a compiled library: [Errno 17] File exists: 'TEMPORARY'
    temporary_folder().unlink()

    # A compiler whose output is not a library.
    nonsense = 'while [ "$1" ]; do [ "$1" = -o ] && echo no > "$2"; shift; done; exit 0'
    os.environ["CC"] = pretend("othercc", nonsense)
    message()  # -> the compiled library cannot be loaded: TEMPORARY...
    shutil.rmtree(folder)

"""Step build03: A safe cache for compiled libraries

The cache of step build02 works as long as nothing goes wrong. These things do go wrong:

    two processes compile the same text at once      one loads a file that is half written
    the process is killed while it writes            half a library stays under the right name
    the disk is damaged, or a file is truncated      the library is broken or empty
    the compiler is updated                          the old library is still used
    the home folder is shared by several machines    a processor loads code that it cannot run
    another user may write to the folder             what they put there runs as this user

Loading half a library is not an error that Python can catch: the process crashes.

So `compile_to` writes the library in a temporary folder on the same disk, and moves it with
os.replace. The move is atomic: other processes see no file or a complete one. A checksum is stored
beside the library. If library and checksum do not match, the library is compiled again. And the
name now also depends on the version of the compiler and on the features of the processor. The
folder has to be the user's own, or build raises PermissionError. What killed processes have left in
it goes with the next compilation.

The trap: library and checksum are two files, and the process may be killed between the two moves.
Then they do not match, and the next process compiles again: slow once, never wrong.

New: version_of, is_ours, prepare, clear, cached, compile_to. Changed: build.
Try: truncate the library to half its size, and load it without asking `cached`. Python crashes.
"""

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
        # The libraries that are linked (-lm) have to stand behind the source.
        run_compiler([*command, *flags])
        checksum = Path(folder, "checksum")
        checksum.write_text(digest_of(library.read_bytes()))
        os.replace(text, path.with_suffix(".c"))
        os.replace(library, path)
        os.replace(checksum, path.with_suffix(".sha256"))


def build(source: str, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """The library of C source text. What was compiled once is taken from the cache.

    Raises:
        CompilerError: there is no compiler, or it fails.
    """
    compiler = find_compiler()
    version = version_of(tuple(compiler))
    name = digest_of("\0".join((source, *flags, *compiler, version)).encode())[:32]
    path = cache_folder() / (name + ENDING)
    prepare(path.parent)
    if not cached(path):
        compile_to(path, compiler, flags, source)
    return ctypes.CDLL(str(path))


if __name__ == "__main__":
    folder = tempfile.TemporaryDirectory()
    os.environ["TINYTORCH_CACHE"] = folder.name
    source = "int answer(void) { return 42; }\n"
    print(len(version_of(tuple(find_compiler()))) > 20)  # -> True
    print(build(source).answer())  # -> 42
    (library,) = Path(folder.name).glob(f"*{ENDING}")
    print(cached(library), len(list(Path(folder.name).iterdir())))  # -> True 3

    # Half a library, and no library. (In new processes, since this one has loaded the library.)
    def in_a_new_process():
        script = f"from steps.depth.build03 import build; print(build({source!r}).answer())"
        root = Path(__file__).parent.parent.parent
        command = [sys.executable, "-c", script]
        return subprocess.run(command, capture_output=True, text=True, cwd=root).stdout.strip()

    data = library.read_bytes()
    library.unlink()
    library.write_bytes(data[: len(data) // 2])
    print(cached(library), in_a_new_process(), cached(library))  # -> False 42 True
    library.unlink()
    print(cached(library), in_a_new_process(), cached(library))  # -> False 42 True

    # Three processes at once.
    shutil.rmtree(folder.name)
    command = [sys.executable, "-c", f"from steps.depth.build03 import build; build({source!r})"]
    root = Path(__file__).parent.parent.parent
    running = [subprocess.Popen(command, cwd=root) for _ in range(3)]
    print([process.wait() for process in running], cached(library))  # -> [0, 0, 0] True
    print(len(list(Path(folder.name).iterdir())))  # -> 3

    # What a killed process has left; a folder into which others may write.
    left = Path(folder.name, "building-0")
    left.mkdir()
    os.utime(left, (0, 0))
    print(build("int other(void) { return 7; }\n").other(), left.exists())  # -> 7 False
    os.chmod(folder.name, 0o777)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            build(source)
        except PermissionError as error:
            print(str(error).replace(folder.name, "FOLDER"), len(found))
    # -> others may write to the compile cache FOLDER 1
    folder.cleanup()

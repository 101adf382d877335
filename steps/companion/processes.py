"""Runs a script of the companion as `python -W error SCRIPT ARGUMENT ...` would, in a process of
its own.

On Linux the process is a fork of warm.py, a Python that has imported NumPy. Elsewhere a Python is
started each time: on Windows there are no forks, and on macOS the system's libraries for linear
algebra need not work in one.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FORKS = sys.platform == "linux"

_WARM = Path(__file__).with_name("warm.py")


def one_thread(threads: str = "1") -> dict[str, str]:
    """The environment with one thread for linear algebra: two steps run at a time."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, threads) | {"PYTHONIOENCODING": "utf-8"}
    environment.pop("PYTEST_CURRENT_TEST", None)  # another one in each test, and none of a step
    return environment


def environment_with(seed: int, threads: int) -> dict[str, str]:
    """The environment with a hash seed and a number of threads."""
    return one_thread(str(threads)) | {"PYTHONHASHSEED": str(seed)}


def run_script(
    script: Path,
    arguments: list[str],
    folder: Path,
    timeout: float,
    environment: dict[str, str] | None = None,
):
    """Run a script in a folder: (exit status, output, error output).

    After `timeout` seconds it ends, with all its processes; then the status is None. What it
    started and left behind counts as part of it, as long as that holds its error output open.
    In another `environment` than usual a Python starts for it.
    """
    command = [str(script), *arguments]
    if environment is None and FORKS:
        status, output, errors = _run_forked(command, folder, timeout)
    else:
        status, output, errors = _run_started(command, folder, timeout, environment)
    return status, output.decode(errors="replace"), errors.decode(errors="replace")


def _run_started(command, folder, timeout, environment=None):
    process = subprocess.Popen(
        [sys.executable, "-W", "error", *command],
        cwd=folder,
        env=environment or one_thread(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, *_end(process)
    except BaseException:
        _end(process)
        raise
    return process.returncode, output, errors


def _end(process):
    if hasattr(os, "killpg"):
        _kill_session(process.pid)
    process.kill()
    return process.communicate()


def _kill_session(leader):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


_waiting: list[Warm] = []  # each has nothing to do


def _run_forked(command, folder, timeout):
    try:
        warm = _waiting.pop()
    except IndexError:  # it is the first, or others run at the same time
        warm = Warm()
    if warm.environment != one_thread():
        warm.close()
        warm = Warm()
    try:
        result = warm.run(command, folder, timeout)
    except ConnectionError:  # NumPy cannot be imported: a Python that starts will say why
        warm.close()
        return _run_started(command, folder, timeout)
    except BaseException:
        warm.close()
        raise
    _waiting.append(warm)
    return result


@atexit.register
def _close_all():
    while _waiting:
        _waiting.pop().close()


class Warm:
    """A Python that runs warm.py. It runs one script at a time."""

    def __init__(self):
        self.environment = one_thread()
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", str(_WARM), str(theirs.fileno())],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def close(self):
        self.channel.close()
        self.process.wait()  # it ends where nothing comes any more

    def run(self, command, folder, timeout):
        until = time.monotonic() + timeout
        with tempfile.TemporaryFile() as output:
            reader, writer = os.pipe()
            with open(reader, "rb", buffering=0) as errors:
                with open(writer, "wb", buffering=0):
                    message = json.dumps([str(folder), *command]).encode()
                    socket.send_fds(self.channel, [message], [output.fileno(), writer])
                leader = self._answer()
                found, ended = b"", False
                try:
                    while not ended and _readable(errors, until):
                        if part := errors.read(1 << 16):
                            found += part
                        elif not (ended := _readable(self.channel, until)):
                            break
                finally:
                    if not ended:
                        _kill_session(leader)
            status = self._answer()
            output.seek(0)
            return status if ended else None, output.read(), found

    def _answer(self):
        answer = self.channel.recv(64)
        if not answer:
            raise ConnectionError("warm.py has ended")
        return int(answer)


def _readable(file, until):
    return bool(select.select([file], [], [], max(0.0, until - time.monotonic()))[0])

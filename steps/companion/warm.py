"""A Python that has imported NumPy and waits. It runs each script in a fork of itself.

    python -W error steps/companion/warm.py SOCKET

Python and NumPy take longer to start than most steps take to run, so they start once. A fork is a
process of its own: what one script changes, no other one sees. Nothing happens here before the fork
but the import: no thread begins, no matrix is multiplied. What all forks have in common is the seed
of `hash`; NumPy's random numbers begin anew in each, as they do in a Python that starts.

SOCKET is the number of a file. A message is a JSON list of the folder to run in, the script, and
its arguments; two files come with it, for output and error output. There are two answers: the id
of the process, which leads a session of its own, and its exit status.
"""

import json
import os
import runpy
import signal
import socket
import sys

import numpy


def serve(channel):
    """Fork for each message. Returns the message in the fork, and None at the end."""
    while True:
        message, files, _, _ = socket.recv_fds(channel, 1 << 20, 2)
        if not message:
            return None
        child = os.fork()
        if child == 0:
            os.setsid()
            # A shell's job in the background ignores Ctrl-C, and some demos press it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            channel.send(b"%d" % os.getpid())
            for target, file in enumerate(files, 1):
                os.dup2(file, target)
                os.close(file)
            if "numpy.random" in sys.modules:  # some versions of NumPy import it at once
                numpy.random.seed()  # noqa: NPY002 (what a program may still use)
            return json.loads(message)
        for file in files:
            os.close(file)
        _, status = os.waitpid(child, 0)
        channel.send(b"%d" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        message = serve(channel)
    if message:
        folder, *sys.argv = message
        os.chdir(folder)
        sys.path[0] = os.path.dirname(sys.argv[0])
        runpy.run_path(sys.argv[0], run_name="__main__")

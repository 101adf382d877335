"""Values on their way from one process to another."""

import io
import os
import pickle
import socket
import tempfile
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

# Where the processes hand things to each other: in memory, where the system has a folder for that
# (Linux), else where temporary files are.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def as_socket(connection: Connection) -> socket.socket:
    """The pipe as what it is: a socket. Through one, a process can hand an open file to another."""
    pipe = socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
    pipe.setblocking(True)  # also where a program has called socket.setdefaulttimeout()
    return pipe


def send(connection: Connection, value: Any, small: int = 1024) -> None:
    """Sends any value that pickle knows. What is not small goes into a file in shared memory, and
    only the open file through the pipe: so a pipe never fills up, and writing never waits. The file
    has no name. The system removes it when no process has it open, however they end."""
    arrays: list[pickle.PickleBuffer] = []  # the memory of arrays, which pickle does not copy
    head = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    parts = [head, *(array.raw() for array in arrays)]
    sizes = [len(head), *(part.nbytes for part in parts[1:])]
    if sum(sizes) <= small:
        connection.send((b"".join(parts), sizes))
        return
    with tempfile.TemporaryFile(dir=MEMORY) as file, as_socket(connection) as pipe:
        file.writelines(parts)
        file.flush()
        connection.send((None, sizes))
        socket.send_fds(pipe, [b"f"], [file.fileno()])


def receive(connection: Connection) -> Any:
    """What `send` sent at the other end. Each array gets memory of its own."""
    content, sizes = connection.recv()
    numbers = []  # of the files that this process has open now
    if content is None:
        with as_socket(connection) as pipe:
            numbers = socket.recv_fds(pipe, 1, 1)[1]
        if not numbers:  # the worker died in between
            raise EOFError
    with open(numbers[0], "rb") if numbers else io.BytesIO(content) as file:
        file.seek(0)
        parts = [np.empty(size, np.uint8) for size in sizes]
        for part in parts:
            file.readinto(part)
    return pickle.loads(parts[0], buffers=parts[1:])

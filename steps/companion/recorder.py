"""Runs a step as `python steps/stepNN.py` would, and records which of its lines printed what.

    python -W error steps/companion/recorder.py steps/stepNN.py RECORD.json [LINE ...]

It stands alone, so that a step runs in a process that holds nothing of the companion. RECORD.json
receives `printed`, a list of [lines, text], where `lines` are the line numbers of the step on the
call stack, innermost first, and `seconds`: the smaller one of elapsed time and processor time,
since a busy machine is not a fault of the step. `ran` are those of the LINEs that ran.
"""

import io
import json
import mmap
import os
import runpy
import sys
import threading
import time
import traceback


class Recorder(io.TextIOBase):
    """A standard output that passes everything on and notes who wrote it."""

    def __init__(self, out, path):
        self.out, self.path = out, path
        self.printed = []

    @property
    def encoding(self):
        return self.out.encoding

    def fileno(self):
        return self.out.fileno()

    def isatty(self):
        return False

    def writable(self):
        return True

    def flush(self):
        self.out.flush()

    def write(self, text):
        lines, frame = [], sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.path:
                lines.append(frame.f_lineno)
            frame = frame.f_back
        if self.printed and self.printed[-1][0] == lines:
            self.printed[-1][1].append(text)
        else:
            self.printed.append((lines, [text]))
        return self.out.write(text)


def own_lines(code):
    """The lines of a code object, without those of the functions in it."""
    return {line for _, _, line in code.co_lines()}


def lines_of(code):
    """The lines of a code object and of all that are in it."""
    inner = [each for each in code.co_consts if isinstance(each, type(code))]
    return own_lines(code).union(*map(lines_of, inner))


class Watcher:
    """Notes which lines of one file run, in all threads and in processes that are forks.

    A function is left alone once all its lines have run, and the process once all lines have, so
    that a loop is not slow for long.
    """

    def __init__(self, path, lines):
        self.path, self.lines = path, set(lines)
        self.marks = mmap.mmap(-1, max(self.lines) + 1)  # memory that forks share
        self.waiting = {}  # for each code object, the lines that have not run yet
        with open(path, "rb") as file:
            self.left = self.lines & lines_of(compile(file.read(), path, "exec"))

    def start(self):
        threading.settrace(self.enter)
        sys.settrace(self.enter)

    def stop(self):
        sys.settrace(None)
        threading.settrace(None)
        return [line for line in sorted(self.lines) if self.marks[line]]

    def enter(self, frame, event, value):
        if not self.left:
            sys.settrace(None)
            return None
        code = frame.f_code
        if code.co_filename != self.path:
            return None
        if code not in self.waiting:
            self.waiting[code] = self.lines & own_lines(code)
        return self.step if self.waiting[code] else None

    def step(self, frame, event, value):
        waiting = self.waiting[frame.f_code]
        if event == "line" and frame.f_lineno in waiting:
            waiting.discard(frame.f_lineno)
            self.left.discard(frame.f_lineno)
            self.marks[frame.f_lineno] = 1
            if not waiting:
                frame.f_trace_lines = False
        return self.step


def run(path, record, lines=()):
    """Run the step at `path`, write the record, and return the exit status."""
    sys.argv = [path]
    sys.path[0] = os.path.dirname(path)
    recorder = sys.stdout = Recorder(sys.stdout, path)
    watcher = Watcher(path, lines) if lines else None
    began = time.perf_counter()
    status = 0
    try:
        if watcher:
            watcher.start()
        runpy.run_path(path, run_name="__main__")
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        status = 1
        _print_from_step(error, path)
    elapsed = time.perf_counter() - began
    ran = watcher.stop() if watcher else []
    with open(record, "w", encoding="utf-8") as file:
        printed = [(lines, "".join(texts)) for lines, texts in recorder.printed]
        seconds = min(elapsed, sum(os.times()[:4]))
        json.dump({"printed": printed, "seconds": seconds, "ran": ran}, file)
    return status


def _print_from_step(error, path):
    """The traceback as the reader would see it: from the step's own first line on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


if __name__ == "__main__":
    _, step, record, *lines = sys.argv
    sys.exit(run(os.path.abspath(step), record, [int(line) for line in lines]))

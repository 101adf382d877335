"""Building a library: the compilers, the cache on the disk, and what can go wrong with both."""

import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tinytorch.compiler import build as building
from tinytorch.compiler.build import (
    ENDING,
    CompilerError,
    build,
    cache_folder,
    cached,
    find_compiler,
)

SOURCE = "int answer(void) { return 42; }\n"
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and nothing known of compilers."""
    monkeypatch.setenv("TINYTORCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(building, "first_try", {})
    building.version_of.cache_clear()
    return tmp_path / "cache"


def compiler_script(path, body):
    """A program that stands for a compiler; `body` is Python, args are the arguments."""
    path.write_text(
        f"#!{sys.executable}\nimport os, shutil, subprocess, sys\nargs = sys.argv[1:]\n"
        "if '--version' in args:\n    print('test 1.0')\n    sys.exit()\n" + textwrap.dedent(body)
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@needs_cc
def test_a_library_is_compiled_once(cache, tmp_path, monkeypatch):
    log = tmp_path / "log"
    script = compiler_script(
        tmp_path / "mycc",
        f"open({str(log)!r}, 'a').write('x')\nsys.exit(subprocess.call(['cc', *args]))",
    )
    monkeypatch.setenv("CC", script)
    assert build(SOURCE).answer() == 42
    assert build(SOURCE).answer() == 42
    assert log.read_text() == "x"
    assert build(SOURCE.replace("42", "43")).answer() == 43  # another text
    assert build(SOURCE, ["-O1"]).answer() == 42  # other flags
    assert log.read_text() == "xxx"
    monkeypatch.setenv("CC", f"{script} -O2")  # another command
    assert build(SOURCE).answer() == 42
    assert log.read_text() == "xxxx"
    kinds = sorted(path.suffix for path in cache.iterdir())
    assert kinds == sorted([".c", ".sha256", ENDING] * 4)
    assert SOURCE in [path.read_text() for path in cache.glob("*.c")]


@needs_cc
def test_where_libraries_are_kept(tmp_path, monkeypatch):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("TINYTORCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    build(SOURCE)
    assert len([*(tmp_path / "caches" / "tinytorch").glob(f"*{ENDING}")]) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "tinytorch"


def test_which_compiler(monkeypatch):
    monkeypatch.setenv("CC", "ccache 'my cc' -pipe")
    assert find_compiler() == ["ccache", "my cc", "-pipe"]
    monkeypatch.delenv("CC")
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/cc")
    assert find_compiler() == ["cc"]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert find_compiler() == [sys.executable, "-m", "ziglang", "cc"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerError, match="no C compiler.*pip install ziglang"):
        build(SOURCE)


def test_a_compiler_that_is_not_there(monkeypatch):
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.raises(CompilerError, match="'/nowhere/cc' does not run"):
        build(SOURCE)


@needs_cc
def test_a_compiler_that_fails(cache):
    with pytest.raises(CompilerError, match="(?s)'cc' failed.*error"):
        build("int answer(void) { return forty_two; }\n")
    assert not list(cache.iterdir())  # nothing is left


@needs_cc
def test_flags_that_a_compiler_lacks(tmp_path, monkeypatch):
    log = tmp_path / "log"
    body = f"""
    open({str(log)!r}, "a").write("x")
    if "-fopenmp" in args:
        sys.exit("no omp.h")
    sys.exit(subprocess.call(["cc", *args]))
    """
    monkeypatch.setenv("CC", compiler_script(tmp_path / "mycc", body))
    assert build(SOURCE, ["-O1", "-fopenmp"]).answer() == 42
    assert log.read_text() == "xx"
    assert build(SOURCE.replace("42", "43"), ["-O1", "-fopenmp"]).answer() == 43
    assert log.read_text() == "xxx"  # it does not try again


@needs_cc
@pytest.mark.parametrize("damage", ["half", "empty", "other", "no checksum"])
def test_a_damaged_file_is_made_again(cache, damage):
    build(SOURCE)
    (library,) = cache.glob(f"*{ENDING}")
    data = library.read_bytes()
    library.unlink()  # this process has it loaded
    if damage == "no checksum":
        library.with_suffix(".sha256").unlink()
        library.write_bytes(data)
    else:
        library.write_bytes({"half": data[: len(data) // 2], "empty": b"", "other": b"x"}[damage])
    script = f"from tinytorch.compiler.build import build; print(build({SOURCE!r}).answer())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "42\n", done.stderr
    assert (library.with_suffix(".sha256")).read_text() == building.digest_of(library.read_bytes())


@needs_cc
def test_a_folder_that_is_no_folder(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TINYTORCH_CACHE", str(tmp_path / "file"))
    assert build(SOURCE).answer() == 42  # in a temporary folder


@needs_cc
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only(cache):
    cache.mkdir(mode=0o500)
    assert build(SOURCE).answer() == 42
    assert not list(cache.iterdir())


def refuse(*args, **kwargs):
    raise OSError(28, "No space left on device")


@needs_cc
def test_a_full_disk(cache, tmp_path, monkeypatch):
    """The compiler cannot write its file, and can write nowhere but in /tmp."""
    write = Path.write_bytes
    monkeypatch.setattr(
        Path, "write_bytes", lambda p, b: refuse() if cache in p.parents else write(p, b)
    )
    body = """
    if any("cache" in x for x in args):
        sys.exit("No space left on device")
    sys.exit(subprocess.call(["cc", *args]))
    """
    monkeypatch.setenv("CC", compiler_script(tmp_path / "mycc", body))
    assert build(SOURCE.replace("42", "52")).answer() == 52
    assert not list(cache.iterdir())


@needs_cc
def test_no_place_at_all(monkeypatch):
    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(CompilerError, match="no place for a compiled library.*No space left"):
        build(SOURCE.replace("42", "62"))


@needs_cc
def test_two_processes_build_the_same(cache):
    script = f"from tinytorch.compiler.build import build; print(build({SOURCE!r}).answer())"
    command = [sys.executable, "-c", script]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0] for process in running] == ["42\n"] * 3
    assert len(list(cache.iterdir())) == 3


@needs_cc
def test_a_process_that_is_killed_leaves_nothing_half(cache, tmp_path, monkeypatch):
    body = """
    shutil.copy(sys.executable, args[args.index("-o") + 1])  # some of it is written
    import time
    time.sleep(60)
    """
    slow = compiler_script(tmp_path / "slowcc", body)
    script = f"from tinytorch.compiler.build import build; build({SOURCE!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, "CC": slow}, start_new_session=True
    )
    for _ in range(200):
        if list(cache.glob(f"building-*/*{ENDING}")):
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(cache.glob(f"*{ENDING}"))
    assert build(SOURCE).answer() == 42


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs ziglang")
def test_ziglang(monkeypatch):
    monkeypatch.setenv("CC", f"{sys.executable} -m ziglang cc")
    assert build(SOURCE, ["-O3", "-march=native", "-fopenmp", "-lm"]).answer() == 42


def test_nothing_is_imported_before_it_is_needed():
    script = (
        "import sys, tinytorch; "
        "print([x for x in sys.modules if x.startswith('tinytorch.compiler')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@needs_cc
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_a_cache_that_others_can_write_to_is_not_used(tmp_path, monkeypatch):
    source = "int answer(void) { return 43; }\n"
    monkeypatch.setenv("TINYTORCH_CACHE", str(tmp_path))
    tmp_path.chmod(0o777)
    with pytest.warns(UserWarning, match="others may write to the compile cache"):
        assert build(source).answer() == 43
    assert not list(tmp_path.iterdir())
    tmp_path.chmod(0o700)
    assert build(source).answer() == 43
    (library,) = tmp_path.glob(f"*{ENDING}")
    assert cached(library)
    library.chmod(0o777)
    assert not cached(library)


@needs_cc
def test_what_killed_compilations_left_is_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYTORCH_CACHE", str(tmp_path))
    old, new = tmp_path / "building-old", tmp_path / "building-new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "kernels.c").touch()
    os.utime(old, (0, 0))
    assert build("int answer(void) { return 44; }\n").answer() == 44
    assert not old.exists() and new.exists()

"""Where the CPU kernels come from: compiled once on a machine, kept in the user's cache folder, loaded ever after."""

from __future__ import annotations

import ctypes
import getpass
import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Function:
    """A C function ``void f(void *)``: its address, and the way to call it, which releases the GIL."""

    address: int
    call: Callable[[int], None]


def cache_folder() -> Path:
    """A folder for compiled code that this user can write to: ``NUMBA_CACHE_DIR``, the user's cache folder, or one
    under the system's folder for temporary files. Numba's own choice, beside the sources, is read-only in many
    installations."""
    from platformdirs import user_cache_dir

    wanted = os.environ.get("NUMBA_CACHE_DIR")
    tries = [Path(wanted)] if wanted else []
    tries += [Path(user_cache_dir("paged")) / "numba", Path(tempfile.gettempdir()) / f"paged-{_user()}" / "numba"]
    for folder in (path / _digest() for path in tries):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise OSError(f"compiled kernels can be kept in none of {tries}: set NUMBA_CACHE_DIR to a folder that is writable")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "user"


def _digest() -> str:
    """Names the sources: Numba looks at the file of the outermost function alone to see that its cache is stale."""
    here = Path(__file__).parent
    sources = b"".join((here / name).read_bytes() for name in ("cpu_intrinsics.py", "cpu_worker.py"))
    return hashlib.sha256(sources).hexdigest()[:12]


@contextmanager
def _caching() -> Iterator[None]:
    """Numba reads the place of its cache where a function is decorated."""
    import numba

    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder())
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


@cache
def worker() -> ModuleType | None:
    """The module ``kernels.cpu_worker``, or None, with a warning, where Numba is missing.

    Numba is imported here and not before, since that takes a quarter of a second.
    """
    try:
        with _caching():
            from kernels import cpu_worker
    except ImportError as error:
        log.warning("native CPU attention is off, plain PyTorch does its work: %s (pip install numba)", error)
        return None
    return cpu_worker


@cache
def c_function(name: str) -> Function:
    """The compiled kernel of that name: ``attend_float32``, ``attend_bfloat16``, ``store`` or ``move``."""
    module = worker()
    if module is None:
        raise ImportError("the compiled CPU kernels need Numba: pip install numba")
    with _caching():
        address = module.compile_kernel(name)
    return Function(address, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address))

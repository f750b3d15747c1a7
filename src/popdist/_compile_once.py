"""One instance builds a result that all of them need, and the others load it.

poprun names a folder in POPDIST_EXECUTABLE_CACHE_PATH (PopRun guide, sections 2.3 and 2.4): one
that ends with this run, or one that lasts. `compile_once` uses that folder; the call is our choice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from popdist._errors import BadEnvironment

CACHE_VARIABLE = "POPDIST_EXECUTABLE_CACHE_PATH"

Built = TypeVar("Built")


def compile_once(
    key: str,
    build: Callable[[], Built],
    *,
    dumps: Callable[[Built], bytes] | None = None,
    loads: Callable[[bytes], Built] | None = None,
) -> Built:
    """Return the result of build(). One instance of a host builds it, and the others load it.

    key: names all that the result depends on, such as the model, its sizes and the compiler's
    version. A result is found again by its key alone. build: takes no arguments. dumps, loads: turn
    the result into bytes and back; pickle by default (for a result that is bytes: `dumps=bytes,
    loads=bytes`).

    Any instance may be the one that builds. The instances take turns by a file lock that ends with
    its holder, so if the builder dies, or build() raises, another one builds. Users share nothing:
    a result that another user could have written is not loaded.

    Without a folder (there is one instance, or the cache is switched off), every call runs build().
    Raises what build() raises, and BadEnvironment if the folder cannot be used.

    >>> popdist.compile_once("net of 4 layers", lambda: b"compiled")
    b'compiled'
    """
    cache_folder = os.environ.get(CACHE_VARIABLE)
    if not cache_folder:
        return build()
    import hashlib
    import pickle

    result_path = os.path.join(
        cache_folder, hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    )
    serialize, deserialize = dumps or pickle.dumps, loads or pickle.loads
    with _hold_lock(f"{result_path}.lock"):
        cached_bytes = _read_cached(result_path)
        if cached_bytes is not None:
            with contextlib.suppress(Exception):  # it is built again
                return deserialize(cached_bytes)
        built = build()
        _write_cached(result_path, serialize(built))
    return built


@contextlib.contextmanager
def _hold_lock(lock_path: str) -> Iterator[None]:
    """Hold a lock that the kernel releases when the holder ends in any way."""
    import fcntl

    try:
        os.makedirs(os.path.dirname(lock_path), 0o700, exist_ok=True)
        lock_fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise BadEnvironment(f"{CACHE_VARIABLE}: {lock_path}: {error.strerror}") from None
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock_fd)


def _read_cached(result_path: str) -> bytes | None:
    try:
        with open(os.open(result_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return None
            return file.read()
    except OSError:
        return None


def _write_cached(result_path: str, content: Any) -> None:
    """Write the file as a whole or not at all.

    Without room on the disk, the others build as well.
    """
    draft_path = f"{result_path}.part"
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft_path)  # the draft of a builder that died
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(draft_path, flags, 0o600), "wb") as file:
            file.write(content)
        os.rename(draft_path, result_path)

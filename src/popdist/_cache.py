"""One instance builds what all of them need, and the others load it.

poprun names a folder in POPDIST_EXECUTABLE_CACHE_PATH (PopRun guide, sections 2.3 and 2.4): one
for this run, or one that lasts. This is how a program uses it; the call is our choice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from popdist._errors import BadEnvironment

CACHE_PATH = "POPDIST_EXECUTABLE_CACHE_PATH"

Built = TypeVar("Built")


def compile_once(
    key: str,
    build: Callable[[], Built],
    *,
    dumps: Callable[[Built], bytes] | None = None,
    loads: Callable[[bytes], Built] | None = None,
) -> Built:
    """What build() returns: built by one instance of a host, loaded by the others.

    key: names all that the result depends on, such as the model, its sizes and the compiler's
    version; a result is found again by its key alone. build: takes no arguments. Its result is
    kept by pickle, or as `dumps` and `loads` turn it into bytes and back (bytes themselves:
    `dumps=bytes, loads=bytes`). Any instance may be the one that builds. If it dies, or build()
    raises, another one builds. Nothing is shared between users: results that somebody else could
    have written are not loaded.

    Without a folder (one instance, or a cache that was switched off), build() is called.
    Raises what build() raises, BadEnvironment if the folder cannot be used.
    """
    folder = os.environ.get(CACHE_PATH)
    if not folder:
        return build()
    import hashlib
    import pickle

    path = os.path.join(folder, hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest())
    put, take = dumps or pickle.dumps, loads or pickle.loads
    with _locked(f"{path}.lock"):
        content = _read(path)
        if content is not None:
            with contextlib.suppress(Exception):  # whatever it holds, we can build it again
                return take(content)
        built = build()
        _write(path, put(built))
    return built


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold a lock that ends with its holder, however that ends."""
    import fcntl

    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise BadEnvironment(f"{CACHE_PATH}: {path}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read(path: str) -> bytes | None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                return None
            return file.read()
    except OSError:
        return None


def _write(path: str, content: Any) -> None:
    """Whole or not at all. Where there is no room, the others build too."""
    draft = f"{path}.part"
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)  # of a builder that died
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(draft, flags, 0o600), "wb") as file:
            file.write(content)
        os.rename(draft, path)

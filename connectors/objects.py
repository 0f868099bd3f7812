"""Object stores by URL: a local directory, S3, Google Cloud Storage, Azure Blob Storage; by obstore.

Credentials and endpoints come from the variables that each provider's own tools read (``AWS_ACCESS_KEY_ID``,
``AWS_ENDPOINT_URL``, ``GOOGLE_SERVICE_ACCOUNT``, ``AZURE_STORAGE_ACCOUNT_NAME``, …).

Invariant: an object is there whole or not at all, and once ``put_new`` has returned it survives a crash: the store
renames a finished file, and in a local directory file and name are flushed to the disk before the return.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore
from obstore import store as stores
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError, NotFoundError

from connectors.ports import NoSuchObject, StoredObject, Unavailable

SCHEMES = ("file", "s3", "gs", "az")
TIMEOUT = timedelta(seconds=30)
"""For one request; the store tries again by itself within ``RETRY``."""
RETRY: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=30)}


def open_objects(url: str) -> ObjectStore:
    """The store at a URL or in a local directory. It is opened, and a directory made, at the first use.

    Raises
    ------
    ValueError
        The URL is none that can be opened.
    """
    parts = urlsplit(url)
    if not url:
        raise ValueError("no object store is named: give --objects or set MNEMOLOG_OBJECTS (a directory, s3://…)")
    if "://" not in url:
        return ObjectStore(url, Path(url).expanduser().absolute())
    if parts.scheme not in SCHEMES:
        named = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ValueError(f"object store {url!r} has the scheme {parts.scheme!r}; expected a directory or {named}")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise ValueError(f"object store {url!r}: expected an absolute path, as in file:///var/lib/mnemolog")
        return ObjectStore(url, Path(unquote(parts.path)))
    if not parts.netloc:
        raise ValueError(f"object store {url!r} names no bucket: expected {parts.scheme}://bucket/folder")
    return ObjectStore(url, None)


class ObjectStore:
    """``ports.Objects`` on a real store."""

    def __init__(self, url: str, directory: Path | None) -> None:
        self.url = url
        self._directory = directory
        self._opened: Any = None

    @property
    def _store(self) -> Any:
        if self._opened is None:
            if self._directory is not None:
                self._opened = stores.LocalStore(self._directory, mkdir=True)
            else:
                options: Any = {"timeout": TIMEOUT, "allow_http": _allows_http()}
                self._opened = stores.from_url(self.url, client_options=options, retry_config=RETRY)
        return self._opened

    async def put_new(self, path: str, data: bytes) -> bool:
        """See ``ports.Objects``."""
        with self._told(path):
            try:
                # In one request: a multipart upload can't be refused where the path is taken.
                await obstore.put_async(self._store, path, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            if self._directory is not None:
                await asyncio.to_thread(_flush, self._directory / path)
        return True

    async def get(self, path: str) -> bytes:
        """See ``ports.Objects``."""
        with self._told(path):
            result = await obstore.get_async(self._store, path)
            return bytes(await result.bytes_async())

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        """See ``ports.Objects``."""
        if length <= 0:
            return b""
        with self._told(path):
            # A range that begins beyond the end is an error of the store, as over HTTP; we never ask for one.
            return bytes(await obstore.get_range_async(self._store, path, start=start, length=length))

    async def list(self, prefix: str) -> Sequence[StoredObject]:
        """See ``ports.Objects``."""
        folder = prefix.rstrip("/")
        with self._told(prefix):
            found = [
                StoredObject(meta["path"], meta["size"])
                async for batch in obstore.list(self._store, folder)
                for meta in batch
            ]
        return sorted(found, key=lambda item: item.path)

    async def delete(self, paths: Sequence[str]) -> None:
        """See ``ports.Objects``."""
        for path in paths:
            with self._told(path):
                try:
                    await obstore.delete_async(self._store, path)
                except (NotFoundError, FileNotFoundError):
                    continue

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        try:
            yield
        except (NotFoundError, FileNotFoundError) as error:
            raise NoSuchObject(f"{self.url} has no object {path!r}") from error
        except InvalidPathError as error:
            raise ValueError(f"{path!r} is no path of an object: {error}") from error
        except (BaseError, OSError) as error:
            raise Unavailable(f"object store {self.url}: {_first_line(error)}") from error


def _allows_http() -> bool:
    """Whether plain HTTP is allowed, as for MinIO beside us; obstore doesn't read it beside options of ours."""
    return any(os.environ.get(f"{cloud}_ALLOW_HTTP", "").lower() == "true" for cloud in ("AWS", "AZURE", "GOOGLE"))


def _first_line(error: BaseException) -> str:
    """What obstore says to people; below it are pages of Rust."""
    return (str(error).strip().splitlines() or [repr(error)])[0][:300]


def _flush(file: Path) -> None:
    for path in (file, file.parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

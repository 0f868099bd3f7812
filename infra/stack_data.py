"""The data directory of a local stack.

    mnemolog.json   format, broker kind, creation time, cluster id
    lock            held (flock) by the one stack that uses the directory
    kafka/ clickhouse/ objects/ roles/   data of the parts
    logs/ run/      logs, and files that mean something only while the stack runs

Invariant: files that belong to another log never meet a new one. The embedded broker keeps its log in memory and is
filled from `objects/` at its start; what an earlier run derived from the log (rows by offset, files of the roles) may
be ahead of what was archived, so it is set aside (`NAME.previous`, the one before is deleted) and derived again.
Without an archive, `objects` too is set aside, as `NAME.1`, `NAME.2`, …. A directory that isn't ours is not touched.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from infra.stack_options import StackError, UpOptions

FORMAT = 1
# chDB and Kafka preallocate: an empty stack takes 60 MB, a first hour of use some hundred.
FREE_BYTES_MIN = 500 * 1024 * 1024
_META, _LOCK = "mnemolog.json", "lock"
_BOUND_TO_LOG = ("clickhouse", "objects", "roles")
_DERIVED = ("clickhouse", "roles")
_ARCHIVE = Path("objects") / "archive"
_TEMPORARY_PREFIX = "mnemolog-up-"


class InUse(StackError):
    """Another stack has the directory."""


@dataclass(slots=True)
class DataDirectory:
    """A data directory that this process holds the lock of.

    Attributes
    ----------
    path : Path
        Absolute.
    cluster_id : str
        Id for the broker: kept for `kafka`, new at each start for `embedded`.
    temporary : bool
        Removed by `close`.
    """

    path: Path
    cluster_id: str
    temporary: bool
    _lock: IO[str]

    def of(self, *names: str) -> Path:
        """Path of a subdirectory, created if need be."""
        path = self.path.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def close(self, keep_logs: bool = False) -> None:
        """Release the lock; remove a temporary directory (all but its logs with `keep_logs`)."""
        if self.temporary:
            for entry in list(self.path.iterdir()):
                if keep_logs and entry.name == "logs":
                    continue
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()
            if not keep_logs:
                self.path.rmdir()
        self._lock.close()


def open_data(options: UpOptions, say: Callable[[str], None]) -> DataDirectory:
    """Open, check and lock the data directory that `options` name, creating it if need be.

    Raises
    ------
    StackError
        It is in use, not writable, not ours, of another format or broker kind, or the disk is full.
    """
    temporary = options.data is None and options.broker == "embedded" and not options.keep
    try:
        return _open(options, temporary, say)
    except InUse as error:
        if options.data is not None or options.broker != "embedded":
            raise
        say(f"{error}; this one keeps nothing: everything is gone when it stops")
        return _open(options, True, say)


def _open(options: UpOptions, temporary: bool, say: Callable[[str], None]) -> DataDirectory:
    try:
        if temporary:
            remove_stale_temporaries()
            check_space(Path(tempfile.gettempdir()))
            path = Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX))
        else:
            path = (options.data or default_data(options.broker)).expanduser().absolute()
            path.mkdir(parents=True, exist_ok=True)
        check_space(path)
        _check_ours(path, options)
        lock = _lock(path)
        meta = _check_ours(path, options)  # again: another stack may have written it before we had the lock
        cluster_id = _write_meta(path, options, meta)
        if meta is not None and options.broker == "embedded":
            _set_aside(path, say)
    except OSError as error:
        where = error.filename or options.data or tempfile.gettempdir()
        raise StackError(f"can't write {where}: {error.strerror}; choose another directory with --data") from error
    return DataDirectory(path, cluster_id, temporary, lock)


def default_data(broker: str = "kafka") -> Path:
    """Where a stack keeps its files without `--data`: a directory a broker, since a log is of one kind."""
    share = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return share / ("mnemolog" if broker == "kafka" else f"mnemolog-{broker}")


def check_space(path: Path) -> None:
    """Refuse a disk that is about to be full.

    Raises
    ------
    StackError
        Less than 500 MB are free under `path`.
    """
    free = shutil.disk_usage(path).free
    if free < FREE_BYTES_MIN:
        raise StackError(
            f"only {free // 1024**2} MB are free under {path}, the stack needs {FREE_BYTES_MIN // 1024**2} MB: "
            "make room or choose another disk with --data"
        )


def remove_stale_temporaries() -> None:
    """Remove temporary data directories whose stack was killed before it could do so."""
    for path in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY_PREFIX}*"):
        try:
            if path.stat().st_uid != os.getuid() or not (path / _META).exists():
                continue
            with (path / _LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:  # in use, or removed by another stack that starts now
            continue


def _check_ours(path: Path, options: UpOptions) -> dict[str, object] | None:
    """Read mnemolog.json; None for a new directory."""
    file = path / _META
    if not file.exists():
        strange = sorted(entry.name for entry in path.iterdir() if entry.name != _LOCK)
        if strange:
            raise StackError(
                f"{path} is no mnemolog data directory: it holds {strange[0]!r} "
                f"(entries: {len(strange)}) but no {_META}; name an empty or new directory with --data"
            )
        return None
    try:
        meta = json.loads(file.read_text())
    except ValueError:
        meta = None
    if not isinstance(meta, dict):
        raise StackError(f"{file} is damaged: expected a JSON object; restore it or name another directory with --data")
    if meta.get("format") != FORMAT:
        raise StackError(
            f"{path} has data format {meta.get('format')!r}, this version of mnemolog expects {FORMAT}: "
            "use the version that wrote it, or name another directory with --data"
        )
    if meta.get("broker") != options.broker:
        raise StackError(
            f"{path} belongs to a stack with --broker {meta.get('broker')}, got --broker {options.broker}: "
            f"start it with --broker {meta.get('broker')}, or name another directory with --data"
        )
    return meta


def _lock(path: Path) -> IO[str]:
    lock = (path / _LOCK).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise InUse(
            f"{path} is in use by another stack (process {holder}): "
            "stop that one, or name another directory with --data"
        ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _write_meta(path: Path, options: UpOptions, meta: dict[str, object] | None) -> str:
    kept = meta.get("cluster_id") if meta and options.broker == "kafka" else None
    cluster_id = kept if isinstance(kept, str) else new_cluster_id()
    created = (meta or {}).get("created") or datetime.now(UTC).isoformat(timespec="seconds")
    content = {"format": FORMAT, "broker": options.broker, "created": created, "cluster_id": cluster_id}
    part = path / f"{_META}.part"
    part.write_text(json.dumps(content) + "\n")
    part.replace(path / _META)
    return cluster_id


def new_cluster_id() -> str:
    """A random id in Kafka's form: a UUID as 22 characters of URL-safe base64, no dash first (an option)."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def _set_aside(path: Path, say: Callable[[str], None]) -> None:
    if (path / _ARCHIVE).is_dir():
        for name in _DERIVED:
            if (path / name).exists():
                shutil.rmtree(path / f"{name}.previous", ignore_errors=True)
                (path / name).rename(path / f"{name}.previous")
        return
    moved = []
    for name in _BOUND_TO_LOG:
        old = path / name
        if not old.exists() or not any(old.iterdir()):
            continue
        number = 1
        while (aside := path / f"{name}.{number}").exists():
            number += 1
        old.rename(aside)
        moved.append(aside.name)
    if moved:
        say(
            f"there is no archive of the embedded broker's last run, so its data are set aside as {', '.join(moved)} "
            f"in {path} and the stack starts empty"
        )

"""Object stores keep one contract: the in-process one, a local directory, and what a full disk does to it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import obstore
import pytest

from connectors.inprocess import MemoryObjects
from connectors.objects import open_objects
from connectors.ports import Objects, Unavailable
from tests.contracts import ObjectsContract


class TestMemoryObjects(ObjectsContract):
    @pytest.fixture
    def subject(self) -> Objects:
        return MemoryObjects()

    @pytest.fixture
    def unavailable(self) -> Objects:
        objects = MemoryObjects()
        objects.away = True
        return objects


class TestLocalDirectory(ObjectsContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> Objects:
        return open_objects(str(tmp_path / "made on first use" / "林"))

    @pytest.fixture
    def unavailable(self, tmp_path: Path) -> Objects:
        objects = open_objects(str(tmp_path / "store"))
        (tmp_path / "store").mkdir()
        (tmp_path / "store" / "a").write_bytes(b"a file where a folder should be")
        return objects


class TestFileUrl(ObjectsContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> Objects:
        return open_objects((tmp_path / "a b").as_uri())


async def test_an_s3_that_does_not_answer_is_told_as_transient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",  # the discard port: nobody listens
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    objects = open_objects("s3://bucket/folder")
    with pytest.raises(Unavailable, match="s3://bucket/folder"):
        await objects.put_new("a/b", b"x")


async def test_a_full_disk_is_told_as_transient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = open_objects(str(tmp_path))

    async def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(obstore, "put_async", full)
    with pytest.raises(Unavailable, match="No space left on device"):
        await objects.put_new("a", b"1")
    monkeypatch.undo()
    assert await objects.put_new("a", b"1")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "give --objects or set MNEMOLOG_OBJECTS"),
        ("http://x/y", "has the scheme 'http'; expected a directory or file://, s3://"),
        ("file://host/x", "expected an absolute path"),
        ("s3://", "names no bucket"),
    ],
)
def test_a_url_that_cannot_be_opened_is_told(url: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        open_objects(url)

"""Bytes of a file -> UTF-8 bytes of its members: compression, byte order marks, UTF-16, GB 18030, stray bytes.

Invariant: what leaves this module is valid UTF-8 without a byte order mark, its line ends where the file has them, so
that line numbers are those that an editor shows. Stray bytes become U+FFFD in their own line only. Contents decide,
never the file's name.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from connectors.imports.model import Skipped, UnreadableExport

# An archive that unpacks to more than this is a mistake or a bomb; the largest ChatGPT exports known are under 2 GB.
UNPACKED_BYTES_MAX = 4 << 30
# gz around a zip, or a gz inside a zip, exist; deeper nesting doesn't.
NESTING_MAX = 3
_CHUNK_BYTES = 1 << 20
_SAMPLE_BYTES = 1 << 20

# First bytes -> what it is and what to do about it.
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (b"\x89PNG", "a PNG picture", "give the text export"),
    (b"\xff\xd8\xff", "a JPEG picture", "give the text export"),
    (b"GIF8", "a GIF picture", "give the text export"),
    (b"RIFF", "a RIFF (sound, video or WebP) file", "give the text export"),
    (b"OggS", "an Ogg sound file", "give the text export"),
    (b"ID3", "an MP3 sound file", "give the text export"),
    (b"%PDF", "a PDF document", "give the JSON or CSV export"),
    (b"SQLite format 3\x00", "an SQLite database", "export the conversations as JSON or CSV"),
    (b"\xd0\xcf\x11\xe0", "an old Office document (xls, doc)", "save it as CSV (UTF-8)"),
    (b"PAR1", "a Parquet table", "write it out as JSONL or CSV"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it and give the file inside"),
    (b"Rar!", "a RAR archive", "unpack it and give the file inside"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack it (zstd -d) and give the file inside"),
    (b"\x7fELF", "a program", "give the text export"),
)


@dataclass(frozen=True, slots=True)
class Member:
    """One text of the file: `name` inside its archive ("" outside of one) and its UTF-8 bytes."""

    name: str
    data: bytes


def members(path: Path, label: str, skipped: list[Skipped]) -> Iterator[Member]:
    """Yield the texts of a file, unpacking gz, bz2, xz and zip; members of a zip in natural order of their names.

    Parameters
    ----------
    path
        The file.
    label
        What to call it in messages.
    skipped
        Receives the members of an archive that are no text.

    Raises
    ------
    UnreadableExport
        If the file is missing, no text, damaged, encrypted, or too large unpacked.
    """
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise UnreadableExport(f"{label} is a directory; expected one export file: give the file inside") from None
    except OSError as error:
        raise UnreadableExport(f"cannot read {label}: {error.strerror or error}") from None
    yield from _unpacked(data, label, "", skipped, 0)


def _unpacked(data: bytes, label: str, name: str, skipped: list[Skipped], depth: int) -> Iterator[Member]:
    if depth > NESTING_MAX:
        raise UnreadableExport(f"{label}: archives nested more than {NESTING_MAX} deep; unpack it and give the file")
    opener: Callable[[BytesIO], Any] | None = None
    if data[:2] == b"\x1f\x8b":
        opener = _gzip
    elif data[:3] == b"BZh" and data[4:10] == b"1AY&SY":
        opener = bz2.BZ2File
    elif data[:6] == b"\xfd7zXZ\x00":
        opener = lzma.LZMAFile
    if opener is not None:
        yield from _unpacked(_inflate(opener(BytesIO(data)), label), label, name, skipped, depth + 1)
    elif data[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        yield from _zip_members(data, label, skipped, depth)
    else:
        yield Member(name, to_utf8(data, label))


def _gzip(stream: BytesIO) -> gzip.GzipFile:
    return gzip.GzipFile(fileobj=stream)


def _inflate(stream: IO[bytes], label: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        while chunk := stream.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > UNPACKED_BYTES_MAX:
                raise UnreadableExport(f"{label} unpacks to more than {UNPACKED_BYTES_MAX >> 30} GiB; split the export")
            parts.append(chunk)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UnreadableExport(
            f"{label} is a damaged or cut-off compressed file (gz, bz2 or xz: {error}); download or unpack it again"
        ) from None
    return b"".join(parts)


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def _zip_members(data: bytes, label: str, skipped: list[Skipped], depth: int) -> Iterator[Member]:
    try:
        archive = zipfile.ZipFile(BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableExport(f"{label} is a damaged zip archive ({error}); download it again or unpack it") from None
    with archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
        if any(info.filename == "[Content_Types].xml" for info in infos):
            raise UnreadableExport(f"{label} is an Office document (xlsx, docx), not an export; save it as CSV (UTF-8)")
        infos = [info for info in infos if not _is_litter(info.filename)]
        if sum(info.file_size for info in infos) > UNPACKED_BYTES_MAX:
            infos = [info for info in infos if re.search(r"\.(json|jsonl|csv|gz)$", info.filename, re.I)]
        for info in sorted(infos, key=lambda info: _natural(info.filename)):
            if info.flag_bits & 1:
                raise UnreadableExport(f"{label} is an encrypted zip archive; unpack it with its password first")
            try:
                with archive.open(info) as stream:
                    content = _inflate(stream, f"{label}/{info.filename}")
                yield from _unpacked(content, f"{label}/{info.filename}", info.filename, skipped, depth + 1)
            except (UnreadableExport, zipfile.BadZipFile, NotImplementedError) as error:
                skipped.append(Skipped(info.filename, str(error)))


def _is_litter(name: str) -> bool:
    last = name.rsplit("/", 1)[-1]
    return name.startswith("__MACOSX/") or last.startswith("._") or last in (".DS_Store", "Thumbs.db", "desktop.ini")


def to_utf8(data: bytes, label: str) -> bytes:
    """Return a text's bytes as UTF-8 without byte order mark.

    Raises
    ------
    UnreadableExport
        If it is no text, or in an encoding that cannot be told.

    Examples
    --------
    >>> to_utf8("\\ufeff好".encode("utf-16"), "x").decode()
    '好'
    """
    if data[:3] == b"\xef\xbb\xbf":
        data = data[3:]
    elif data[:4] in (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff"):
        return _recoded(data, "utf-32")
    elif data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return _recoded(data, "utf-16")
    for magic, what, advice in _FOREIGN:
        if data.startswith(magic):
            raise UnreadableExport(
                f"{label} is {what}, not an export in a known format (binary, no UTF-8 text): {advice}"
            )
    sample = data[:_SAMPLE_BYTES]
    if data[-1:] in (b"\x00", b"\x1a") and _utf16_without_mark(sample) is None:
        data = data.rstrip(b"\x00\x1a")  # Ctrl-Z of DOS; zeros after a crash
        sample = data[:_SAMPLE_BYTES]
    if b"\x00" in sample:
        guess = _utf16_without_mark(sample)
        if guess is not None:
            return _recoded(data, guess)
        if sample.count(b"\x00") * 100 > len(sample) or _control_share(sample) > 0.05:
            raise UnreadableExport(
                f"{label} is binary, no UTF-8 text in a known format; expected JSON, JSONL or CSV: give the text export"
            )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return _mended(data, label)
    return data


def _recoded(data: bytes, encoding: str) -> bytes:
    return data.decode(encoding, errors="replace").lstrip("\ufeff").encode("utf-8", errors="replace")


def _control_share(sample: bytes) -> float:
    printable = sample.translate(None, bytes(range(9)) + bytes(range(14, 32)))
    return 1.0 - len(printable) / len(sample)


def _utf16_without_mark(sample: bytes) -> str | None:
    """Tell UTF-16 by the zeros beside ASCII characters: JSON and CSV begin with ASCII and are full of it."""
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    for encoding, zeros, others in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if zeros > 0.1 * len(sample) / 2 and others * 20 < zeros:
            text = sample[: len(sample) & ~1].decode(encoding, errors="replace").encode("utf-8", errors="replace")
            return encoding if _control_share(text) < 0.05 else None
    return None


def _mended(data: bytes, label: str) -> bytes:
    """Mend a text that isn't UTF-8 throughout: GB 18030 as a whole, else stray bytes line by line."""
    lines = data.split(b"\n")
    good = 0
    broken: list[bytes] = []
    for index, line in enumerate(lines):
        if line.isascii():
            continue
        try:
            line.decode("utf-8")
            good += 1
        except UnicodeDecodeError:
            broken.append(line)
            lines[index] = line.decode("utf-8", errors="replace").encode()
    if good == 0:
        foreign = b"\n".join(broken)
        if _is_gb18030(foreign):
            return _recoded(data, "gb18030")
        high = sum(foreign[:_SAMPLE_BYTES].count(byte) for byte in range(0x80, 0x100))
        if high * 4 > len(foreign[:_SAMPLE_BYTES]):
            raise UnreadableExport(
                f"{label} is not UTF-8 and its encoding cannot be told; expected UTF-8, UTF-16 or GB 18030: "
                "save it as UTF-8 (decode it with the encoding of the program that wrote it)"
            )
    return b"\n".join(lines)


def _is_gb18030(data: bytes) -> bool:
    """True for text in GB 2312 pairs (both bytes 0xA1 to 0xF7), which accented Latin letters don't form in a row."""
    try:
        data.decode("gb18030")
    except UnicodeDecodeError:
        return False
    sample = data[:_SAMPLE_BYTES]
    high = sum(sample.count(byte) for byte in range(0x80, 0x100))
    paired = sum(len(run) for run in re.findall(rb"(?:[\xa1-\xa9\xb0-\xf7][\xa1-\xfe])+", sample))
    return paired >= 4 and paired >= 0.9 * high

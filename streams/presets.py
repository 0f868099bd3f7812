"""The presets that a deployment has: those of mnemolog and those of a TOML file beside them.

Invariant: the file is read once, when a process starts, so that all its answers know the same presets; what cannot be
used stops the start with one sentence. Answers record the numbers of their preset, so a replay needs no file.
"""

from __future__ import annotations

from pathlib import Path

from streams.core.settings import BadSetting, Catalogue

FILE_BYTES_MAX = 1024 * 1024
"""A preset has at most sixty lines; a megabyte is another file given by mistake."""


def catalogue_of(path: str | Path | None) -> Catalogue:
    """The catalogue with the presets of a file.

    Parameters
    ----------
    path : str, Path or None
        TOML in the form of streams/core/presets.toml; None or empty: the presets of mnemolog alone.

    Raises
    ------
    BadSetting
        One sentence with file, preset, key, what it takes and what it got, or why the file can't be read.
    """
    if not path:
        return Catalogue()
    try:
        size = Path(path).stat().st_size
        if size > FILE_BYTES_MAX:
            raise BadSetting(f"presets file {path} has {size} bytes; expected TOML of at most {FILE_BYTES_MAX}")
        toml = Path(path).read_text("utf-8")
    except OSError as error:
        raise BadSetting(
            f"presets file {path} can't be read ({error.strerror}); expected a TOML file: mend MNEMOLOG_PRESETS or "
            f"--presets"
        ) from error
    except UnicodeDecodeError as error:
        raise BadSetting(f"presets file {path} is not UTF-8 at byte {error.start}; expected TOML") from error
    return Catalogue(toml, origin=str(path))

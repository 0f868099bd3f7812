"""One frozen tree of settings, named presets of it, overrides checked key by key, and its digest.

Invariant: every number that can change an answer is in ``Settings`` or in a versioned constant or file of the core, so
equal digests mean equal answers from equal logs.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.resources import files
from typing import Any, get_type_hints

from streams.core.prompts import VERSION as PROMPTS_VERSION

DEFAULT_PRESET = "balanced"
CORE_VERSION = 3
"""Raised when the same settings would give another answer: a new formula, tokenizer or tie rule."""


class UnknownPreset(ValueError):
    """A preset that is not in presets.toml; the message lists those that are."""


class BadSetting(ValueError):
    """An override that names no setting, or a value of the wrong type or out of range."""


def _number(low: float, high: float) -> Any:
    return field(metadata={"low": low, "high": high})


def _choice(*values: str) -> Any:
    return field(metadata={"choices": values})


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """What is done to a query before it is embedded: see ``ranking.query_text``."""

    augment: str = _choice("names_out", "prefix", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """What experience and knowledge have in common."""

    enabled: bool
    use_bm25: bool
    use_vectors: bool
    bm25_weight: float = _number(0, 100)
    vector_weight: float = _number(0, 100)
    pool: int = _number(1, 1000)
    """Candidates that each engine names and that are scored further."""
    k_rrf: float = _number(0, 10_000)
    k1: float = _number(0, 10)
    b: float = _number(0, 1)
    delta: float = _number(0, 10)
    b_user: float = _number(0, 1)
    b_character: float = _number(0, 1)
    temporal: bool
    lambda_round: float = _number(1e-3, 1e9)
    """Rounds."""
    lambda_hours: float = _number(1e-3, 1e9)
    floor: float = _number(0, 1)
    """Weight that the oldest evidence keeps; 0: ARPM's decay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperienceSettings(PathSettings):
    """Past turns of an owner."""

    fusion: str = _choice("zsum", "rrf", "cosine")
    bonus_speaker: float = _number(0, 10)
    """Added to the z-sum of turns whose speaker the query names."""
    bonus_time: float = _number(0, 10)
    """Added to the z-sum of turns that were said at, or speak of, a time that the query names."""
    bonus_when: float = _number(0, 10)
    """Added to the z-sum of turns that say a time, where the query asks for one."""
    malus_question: float = _number(0, 10)
    """Taken from the z-sum of turns that are questions themselves: the evidence stands in answers."""
    spread: float = _number(0, 10)
    """Of the z-sum that a turn beside one already taken loses, where several things are asked for; see ``spread``."""
    neighbour_weight: float = _number(0, 100)
    """Of the mean standardised cosine of the turns before and after."""
    window_turns: int = _number(0, 5)
    """Turns on either side that lend a turn their words."""
    window_weight: float = _number(0, 1)
    b_session: float = _number(0, 1)
    window_days: float = _number(0, 36_500)
    correction_similarity: float = _number(0, 1)
    """Centred cosine below which the newer of two turns is no correction of the older, whatever the other signs say;
    1: off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeSettings(PathSettings):
    """Documents."""

    fusion: str = _choice("rrf", "zsum")
    b_source: float = _number(0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Facts, summaries and atoms, by PME's five factors; see ``usermemory``."""

    enabled: bool
    half_life_days: float = _number(0.01, 36_500)
    floor: float = _number(0, 1)
    """Recency that the oldest memory keeps; 0: PME's decay."""
    pool: int = _number(1, 1000)
    """Memories, nearest first, that the second pass scores by scene."""
    scene_weight: float = _number(0, 1)
    """Part of its score that a memory loses which has nothing to do with what is being talked about."""
    summary_days: float = _number(1, 36_500)
    """Age at which a summary expires, by event time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankSettings:
    """What a reranker's opinion counts; without one (``MNEMOLOG_RERANK``) the first search alone decides."""

    weight: float = _number(0, 1)
    """Of the reranker's score beside that of the first search; 0: it isn't asked."""
    candidates: int = _number(1, 200)
    """The best of each path that it is asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkingSettings:
    """Sizes in characters; see ``chunking.chunk``."""

    parent_characters: int = _number(100, 20_000)
    child_characters: int = _number(20, 5_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSettings:
    """Budgets in tokens as ``text.token_estimate`` counts them."""

    recent_turns: int = _number(0, 200)
    tokens_recent: int = _number(0, 200_000)
    share_knowledge: float = _number(0, 1)
    """Share of ``limits.tokens``; what knowledge and memory leave unused goes to experience."""
    share_memory: float = _number(0, 1)
    anchor_every_rounds: int = _number(1, 100_000)
    """PME: 15 to 30 rounds, which are 6,000 to 8,000 tokens."""
    anchor_every_tokens: int = _number(0, 1_000_000)
    """Tokens between the anchor and the query from which the anchor comes again as well; 0: rounds alone decide."""
    protocol: str = _choice("standard", "strict")
    """How tightly the model is told to keep to the answer protocol, and what is repaired."""
    temperature: float = _number(0, 2)
    temperature_serious: float = _number(0, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of one answer, and the name of the preset they came from."""

    preset: str
    query: QuerySettings
    experience: ExperienceSettings
    knowledge: KnowledgeSettings
    memory: MemorySettings
    rerank: RerankSettings
    chunking: ChunkingSettings
    prompt: PromptSettings

    def __post_init__(self) -> None:
        if self.chunking.child_characters > self.chunking.parent_characters:
            raise BadSetting(
                f"chunking.child_characters {self.chunking.child_characters} exceeds chunking.parent_characters "
                f"{self.chunking.parent_characters}: children are cut from parents"
            )
        if self.prompt.share_knowledge + self.prompt.share_memory > 1:
            raise BadSetting(
                f"prompt.share_knowledge {self.prompt.share_knowledge} and prompt.share_memory "
                f"{self.prompt.share_memory} sum to more than 1, the whole of limits.tokens"
            )


_PRESET_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PARTS: dict[str, type] = {
    "query": QuerySettings,
    "experience": ExperienceSettings,
    "knowledge": KnowledgeSettings,
    "memory": MemorySettings,
    "rerank": RerankSettings,
    "chunking": ChunkingSettings,
    "prompt": PromptSettings,
}


class Catalogue:
    """Presets by name: those of mnemolog, and tables of a TOML file beside them.

    Parameters
    ----------
    toml : str
        Tables in the form of presets.toml, each with ``extends`` naming a preset of either kind (``balanced`` if it
        names none), a ``description`` if you like, and tables of settings that differ. Shipped presets can't be
        replaced: a name in a recorded answer means the same everywhere.
    origin : str
        Where the text stands, for messages.

    Raises
    ------
    BadSetting
        At once, naming table and key: a preset that can't be resolved, an unknown name, a value out of range.

    >>> mine = Catalogue("[patient]\\nextends = 'arpm'\\n[patient.experience]\\nlambda_hours = 720", origin="mine.toml")
    >>> mine.resolve("patient").experience.lambda_hours, mine.resolve("arpm").experience.lambda_hours
    (720.0, 168.0)
    >>> Catalogue("[hasty.experience]\\nlambda_hours = 0", origin="mine.toml")
    Traceback (most recent call last):
        ...
    streams.core.settings.BadSetting: mine.toml, preset 'hasty': experience.lambda_hours takes a number from 0.001 \
to 1e+09, got 0
    """

    __slots__ = ("_tables",)

    def __init__(self, toml: str = "", *, origin: str = "presets") -> None:
        self._tables = dict(_shipped())
        try:
            own = tomllib.loads(toml)
        except tomllib.TOMLDecodeError as error:
            raise BadSetting(f"{origin} is no TOML: {error}") from error
        for name, table in own.items():
            _check_table(name, table, own, f"{origin}, preset {name!r}")
        for name, table in own.items():
            self._tables[name] = {"extends": DEFAULT_PRESET, "description": f"of {origin}", **table}
        for name in own:
            try:
                self.resolve(name)
            except ValueError as error:
                raise BadSetting(f"{origin}, preset {name!r}: {error}") from error

    def names(self) -> dict[str, str]:
        """Names of the presets with what each is for, shipped ones first."""
        return {name: table["description"] for name, table in self._tables.items()}

    def resolve(self, preset: str | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
        """Settings of a preset with overrides: see ``resolve``."""
        name = DEFAULT_PRESET if preset is None else preset
        values = {part: dict(settings) for part, settings in self._flattened(name, ()).items()}
        for key, value in (overrides or {}).items():
            part, _, setting = str(key).partition(".")
            if part not in _PARTS or setting not in _names(part):
                raise BadSetting(f"unknown setting {key!r}; expected one of {', '.join(known_settings())}")
            values[part][setting] = value
        return _settings(name, values)

    def _flattened(self, name: str, below: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        if not isinstance(name, str) or name not in self._tables:
            raise UnknownPreset(f"unknown preset {name!r}; expected one of {', '.join(self._tables)}")
        if name in below:
            raise BadSetting(f"presets extend each other in a circle: {' -> '.join((*below, name))}")
        own = self._tables[name]
        extended = "extends" in own
        values = self._flattened(own["extends"], (*below, name)) if extended else {part: {} for part in _PARTS}
        return {part: {**values[part], **own.get(part, {})} for part in _PARTS}


def _check_table(name: str, table: Any, own: Mapping[str, Any], where: str) -> None:
    """Names and shapes of a user's preset; its values are checked where it is resolved."""
    if not _PRESET_NAME.fullmatch(name):
        raise BadSetting(f"{where}: a name takes 1 to 64 letters, digits, `_` and `-`")
    if name in _shipped():
        raise BadSetting(f"{where}: the name is taken by a preset of mnemolog; choose another and extend {name!r}")
    if not isinstance(table, dict):
        raise BadSetting(f"{where}: expected a table, got {table!r}")
    for key, value in table.items():
        if key in ("extends", "description"):
            if not isinstance(value, str):
                raise BadSetting(f"{where}: {key} takes a string, got {value!r}")
            if key == "extends" and value not in own and value not in _shipped():
                raise BadSetting(
                    f"{where}: extends unknown preset {value!r}; expected one of {', '.join([*_shipped(), *own])}"
                )
        elif key not in _PARTS:
            raise BadSetting(f"{where}: unknown table {key!r}; expected extends, description, {', '.join(_PARTS)}")
        elif not isinstance(value, dict):
            raise BadSetting(f"{where}: {key} takes a table of settings, got {value!r}")
        else:
            for setting in value:
                if setting not in _names(key):
                    raise BadSetting(
                        f"{where}: unknown setting {f'{key}.{setting}'!r}; expected one of "
                        f"{', '.join(f'{key}.{known}' for known in _names(key))}"
                    )


@cache
def _shipped() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files("streams.core").joinpath("presets.toml").read_text(encoding="utf-8"))


@cache
def _hints(kind: type) -> dict[str, type]:
    return get_type_hints(kind)


@cache
def _names(part: str) -> tuple[str, ...]:
    return tuple(item.name for item in fields(_PARTS[part]))


@cache
def _default_catalogue() -> Catalogue:
    return Catalogue()


def presets() -> dict[str, str]:
    """Names of the presets with what each is for.

    >>> list(presets())[:2]
    ['balanced', 'arpm']
    """
    return _default_catalogue().names()


def resolve(
    preset: str | None = None, overrides: Mapping[str, Any] | None = None, catalogue: Catalogue | None = None
) -> Settings:
    """Settings of a preset with overrides.

    Parameters
    ----------
    preset : str or None
        Name in presets.toml; None: ``balanced``.
    overrides : mapping of dotted key to value
        Such as ``{"experience.lambda_hours": 336}``.
    catalogue : Catalogue, optional
        With presets of the user's beside the shipped ones.

    Raises
    ------
    UnknownPreset
    BadSetting
        Names the key, what it takes and what it got.

    >>> resolve(None, {"experience.lambda_hours": 336}).experience.lambda_hours
    336.0
    >>> resolve("arpm").knowledge.k_rrf
    60.0
    """
    return (catalogue or _default_catalogue()).resolve(preset, overrides)


def recorded(parameters: Mapping[str, Any]) -> Settings:
    """The settings that ``as_dict`` gave; what has been added since is as in ``balanced``.

    >>> recorded(as_dict(resolve("arpm"))) == resolve("arpm")
    True
    """
    values = {part: dict(settings) for part, settings in _default_catalogue()._flattened(DEFAULT_PRESET, ()).items()}
    for part, settings in values.items():
        given = parameters.get(part) or {}
        settings.update({name: given[name] for name in settings if name in given})
    return _settings(str(parameters["preset"]), values)


def known_settings() -> list[str]:
    """Every dotted key that ``resolve`` takes, in order of the tree."""
    return [f"{part}.{name}" for part in _PARTS for name in _names(part)]


def _settings(name: str, values: Mapping[str, Mapping[str, Any]]) -> Settings:
    parts: dict[str, Any] = {}
    for part, kind in _PARTS.items():
        hints = _hints(kind)
        parts[part] = kind(
            **{
                item.name: _checked(f"{part}.{item.name}", hints[item.name], item.metadata, values[part][item.name])
                for item in fields(kind)
            }
        )
    return Settings(preset=name, **parts)


def _checked(key: str, kind: type, limits: Mapping[str, Any], value: Any) -> Any:
    """The value as its setting's type, or BadSetting."""
    if kind is bool:
        if not isinstance(value, bool):
            raise BadSetting(f"{key} takes true or false, got {value!r}")
        return value
    if kind is str:
        if value not in limits["choices"]:
            raise BadSetting(f"{key} takes one of {', '.join(limits['choices'])}, got {value!r}")
        return value
    low, high = limits["low"], limits["high"]
    wanted = f"{key} takes {'a whole number' if kind is int else 'a number'} from {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BadSetting(f"{wanted}, got {value!r}")
    if not low <= value <= high or (kind is int and value != int(value)):
        raise BadSetting(f"{wanted}, got {value!r}")
    return kind(value)


def as_dict(settings: Settings) -> dict[str, Any]:
    """The tree as plain data, key by key; ``preset`` included."""
    return asdict(settings)


def digest(settings: Settings, extra: Mapping[str, Any] | None = None) -> str:
    """SHA-256 over the canonical JSON of the settings, the core's version and ``extra`` (embedder, calibration).

    The preset's name is left out: the same numbers under two names give the same answers.

    >>> digest(resolve("full")) == digest(resolve("balanced"))
    True
    >>> digest(resolve()) == digest(resolve(), {"embedder": "e5"})
    False
    """
    values = as_dict(settings)
    del values["preset"]
    whole = {
        "settings": values,
        "extra": dict(extra or {}),
        "core_version": CORE_VERSION,
        "prompts_version": PROMPTS_VERSION,
    }
    canonical = json.dumps(whole, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()

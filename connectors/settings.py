"""Where the outside systems are, and the few numbers that a deployment may change. Frozen; read once.

Environment variables are ``MNEMOLOG_`` plus the field's name, e.g. ``MNEMOLOG_KAFKA=broker:9092``.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

ARCHIVE_DAYS_MIN = 90


class PreviousEmbedder(BaseModel):
    """Where the embedder answers that is being replaced."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    model: str
    key: str | None = None
    query_prefix: str = ""


class Settings(BaseSettings):
    """Settings of every process. Relations between them are asserted with their reason."""

    model_config = SettingsConfigDict(env_prefix="MNEMOLOG_", frozen=True, extra="ignore")

    kafka: str = "127.0.0.1:9092"
    clickhouse: str = "http://127.0.0.1:8123"
    clickhouse_database: str = "mnemolog"
    embeddings: str = "http://127.0.0.1:8080/v1"
    embeddings_model: str = "multilingual-e5-small-q4"
    embeddings_key: str | None = None
    embeddings_query_prefix: str = ""
    """Put before queries; needed by an e5 server that does not read ``input_type`` ("query: ")."""
    embeddings_passage_prefix: str = ""
    embeddings_previous: PreviousEmbedder | None = None
    """The embedder before this one, as JSON, while what it embedded is embedded anew: questions to owners that are
    not done yet are then matched by its vectors, otherwise by words only. ``{"url": …, "model": …}``."""
    presets: str | None = None
    """TOML file with presets beside those of mnemolog; read once, at the start of a memory worker."""
    knowledge_engine: Literal["bm25", "lucene"] = "bm25"
    """What matches words in documents; ``lucene`` for very many of them, see infra/decisions/0012."""
    rerank: str | None = None
    """URL of a reranker (Cohere, TEI, OpenAI-compatible: ``/rerank`` is appended); used where a preset's
    ``rerank.weight`` is above 0."""
    rerank_model: str | None = None
    rerank_key: str | None = None
    rerank_timeout_ms: int = Field(default=300, ge=1, le=60_000)
    model_url: str | None = None
    """Base URL of an OpenAI-compatible endpoint (``/chat/completions`` is appended); None: rules do without a model."""
    model: str = "default"
    """Name of the chat model that the endpoint serves."""
    model_key: str | None = None
    model_timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """Longest time for an answer of the model, tries and waits for a free slot included."""
    model_concurrency: int = Field(default=4, ge=1, le=1024)
    """Requests to the model in flight at once, in one process."""
    model_tokens_per_owner_day: int = Field(default=200_000, ge=0)
    """Budget of tokens, read and written, of one owner in one UTC day; 0: no bound. Above it rules take over."""
    judge: bool = False
    """Whether the chat model also judges if answers keep to their persona (kind ``check``), beside the rules."""
    judge_timeout_s: float = Field(default=10.0, gt=0, le=600)
    model_price_in: float | None = Field(default=None, ge=0)
    """Price of a million tokens read, in any currency; None: unknown, so no cost is told."""
    model_price_out: float | None = Field(default=None, ge=0)
    objects: str = ""
    """Where the raw transcript is archived: a directory, ``file://``, ``s3://``, ``gs://``, ``az://``; "": nowhere."""
    prefix: str = "mnemolog."
    broker: Literal["embedded", "kafka"] = "kafka"
    """``embedded``: Tansu, which polls waiting fetches and holds a group join for half the session timeout."""
    ready_file: str | None = None
    metrics_port: int = Field(default=0, ge=0, le=65535)
    """``/metrics``, ``/status`` and ``/ready`` of this process; 0: off."""
    metrics_host: str = "127.0.0.1"
    """0.0.0.0 where the scraper is on another machine or in another container."""
    data: str | None = None
    """Directory of this process's own files."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    partitions: int = Field(default=4, ge=1, le=4096)
    replication: int = Field(default=1, ge=1, le=32767)
    session_timeout_ms: int | None = None
    """None: 10,000 on Kafka (11 s failover after kill -9, measured), 2,000 on the embedded broker."""
    fetch_wait_ms: int = Field(default_factory=lambda data: 30 if data["broker"] == "embedded" else 10, ge=1, le=1500)
    """Faust hard-codes 1,500, which makes a drained partition wait that long: see connectors.faust_transport."""

    ingest_in_flight_max: int = Field(default=2000, ge=1)
    document_tasks_max: int = Field(default=2, ge=1)
    request_tasks_max: int = Field(default=512, ge=1)
    """In work at once, those included that wait for a turn; above it requests are refused as ``overloaded``."""
    request_deadline_ms_default: int = Field(default=30_000, ge=1)
    """For requests without a deadline header, counted from when they are read: the sender's clock may be wrong."""
    snapshot_events: int = Field(default=20_000, ge=0)
    """Journal events between two snapshots of a partition, in ``data``; 0: none. Never on the embedded broker."""
    archive_seconds: float = Field(default_factory=lambda data: 2.0 if data["broker"] == "embedded" else 10.0, ge=0.1)
    """Longest time until a record is archived. The embedded broker has no other copy, hence the shorter one."""
    archive_segment_bytes: int = Field(default=4 * 1024 * 1024, ge=64 * 1024)
    """Compressed bytes after which a segment is closed; an archiver keeps so much of each partition in memory."""
    archive_retention_days: int | None = None
    """How long the raw transcript is kept, at least 90 days; None: for ever."""
    extraction: bool = True
    """Whether facts and summaries are extracted from conversations."""
    segment_idle_s: float = Field(default=20.0, ge=0)
    """Silence after which an open segment is extracted; a longer one waits for its 40th turn or for such silence."""
    conflict_policy: Literal["newest_explicit", "confidence", "model", "manual"] = "newest_explicit"
    """Who settles two values of one fact; recorded with each extraction, so a change holds from then on."""
    embed_batch: int = Field(default=16, ge=1, le=2048)
    shutdown_ms: int = Field(default=8_000, ge=100)

    @model_validator(mode="after")
    def _relations(self) -> Self:
        if self.session_ms < 3 * self.heartbeat_ms:
            raise ValueError(
                "session_timeout_ms must be at least three heartbeats, or one lost heartbeat ends the session"
            )
        if self.shutdown_ms > 10_000:
            raise ValueError("shutdown_ms must stay within 10 s, after which supervisors kill")
        if self.archive_retention_days is not None and self.archive_retention_days < ARCHIVE_DAYS_MIN:
            raise ValueError(
                f"archive_retention_days must be at least {ARCHIVE_DAYS_MIN}, got {self.archive_retention_days}: "
                "the raw transcript settles disputes for that long; leave it out to keep it for ever"
            )
        if self.archive_retention_days is not None and self.broker == "embedded":
            raise ValueError(
                "archive_retention_days can't be set with the embedded broker: it is filled from the archive at its "
                "start, which needs all of it; use --broker kafka"
            )
        return self

    @property
    def session_ms(self) -> int:
        """Group session timeout in ms."""
        return self.session_timeout_ms or (2_000 if self.broker == "embedded" else 10_000)

    @property
    def heartbeat_ms(self) -> int:
        """Heartbeat interval in ms: a sixth of the session, so that some may be lost."""
        return max(100, self.session_ms // 6)

    def topic(self, name: str) -> str:
        """Full name of a topic."""
        return self.prefix + name

"""Where the outside systems are, and the few numbers that a deployment may change. Frozen; read once.

Environment variables are ``MNEMOLOG_`` plus the field's name, e.g. ``MNEMOLOG_KAFKA=broker:9092``.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


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
    objects: str = "file:///tmp/mnemolog-objects"
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

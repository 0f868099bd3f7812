"""One role in one process: ``python -m infra.worker ingest|memory|analytics``, configured by the environment."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import structlog

from connectors.settings import Settings
from infra.java import LUCENE_JAVA_MIN, find_java

ROLES = ("ingest", "memory", "analytics")


def run(role: str) -> int:
    """Run a role until a signal ends it; returns the exit code."""
    # faust-streaming and its dependencies warn about their own use of the standard library; not the operator's matter.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    settings = Settings()
    level = getattr(logging, settings.log_level.upper())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    from connectors.faust_transport import run_worker
    from connectors.lucene import LuceneMissing
    from streams.core.settings import BadSetting

    try:
        app = _created(role, settings)
    except (BadSetting, LuceneMissing) as error:
        print(f"mnemolog: {error}", file=sys.stderr)
        return 2
    return run_worker(app, "warn")


def _created(role: str, settings: Settings) -> Any:
    # Roles are imported one by one: each is heavy, and none needs the others.
    if role == "ingest":
        from streams import ingest

        return ingest.create(settings)
    if role == "memory":
        from streams import memory

        if settings.knowledge_engine == "lucene" and (java := find_java(LUCENE_JAVA_MIN)) is not None:
            os.environ["JAVA_HOME"] = str(java.home)  # pyjnius takes the JVM from there, not the newest
        return memory.create(settings)
    from streams import analytics

    return analytics.create(settings, Path(__file__).parent / "clickhouse")


def main() -> int:
    """Entry point."""
    if len(sys.argv) != 2 or sys.argv[1] not in ROLES:
        print(f"usage: python -m infra.worker {'|'.join(ROLES)}", file=sys.stderr)
        return 2
    return run(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())

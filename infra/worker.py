"""One role in one process: ``python -m infra.worker ingest|memory|analytics``, configured by the environment."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

import structlog

from connectors.settings import Settings

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
    # Roles are imported one by one: each is heavy, and none needs the others.
    from connectors.faust_transport import run_worker

    if role == "ingest":
        from streams import ingest

        app = ingest.create(settings)
    elif role == "memory":
        from streams import memory

        app = memory.create(settings)
    else:
        from streams import analytics

        app = analytics.create(settings, Path(__file__).parent / "clickhouse")
    return run_worker(app, "warn")


def main() -> int:
    """Entry point."""
    if len(sys.argv) != 2 or sys.argv[1] not in ROLES:
        print(f"usage: python -m infra.worker {'|'.join(ROLES)}", file=sys.stderr)
        return 2
    return run(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())

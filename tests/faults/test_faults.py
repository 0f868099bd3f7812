"""A short seeded soak on Apache Kafka: two workers a role, everything breaks in turn, nothing is lost or doubled."""

from __future__ import annotations

import logging
import os
import shutil

import pytest

from infra.soak import run_soak


@pytest.mark.integration
@pytest.mark.kafka
@pytest.mark.timeout(480)
def test_nothing_acknowledged_is_lost_doubled_or_foreign(tmp_path):
    if (shutil.which("java") is None or shutil.which("mvn") is None) and not os.environ.get("CI"):
        pytest.skip("Apache Kafka needs java and mvn on PATH")
    # While the broker is down aiokafka says so a hundred times; the report says what matters.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    report = run_soak(tmp_path, seconds=60, seed=11, rate=6, pause_s=3)
    assert report["problems"] == [], report
    assert report["turns_acknowledged"] > 100
    assert report["recalled"] > 100
    assert report["requests"]["answered"] > 20
    assert len(report["faults"]) >= 6

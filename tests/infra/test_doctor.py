"""The doctor: bounded, and right about what is there and what is not."""

import http.server
import socket
import threading
import time
from pathlib import Path

import pytest

from infra import doctor
from infra.doctor import diagnose
from infra.java import Java
from infra.stack import Addresses


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOLOG_STATE", str(tmp_path))


def by_name(findings):
    return {finding.name: finding for finding in findings}


def nowhere(**parts):
    return Addresses(
        **({"kafka": "", "clickhouse": "", "embeddings": "", "objects": "", "prefix": "", "data": ""} | parts)
    )


def test_this_installation_is_sound():
    findings = by_name(diagnose())
    assert {
        "python",
        "aiokafka",
        "faust streams",
        "java for kafka",
        "maven",
        "disk",
        "memory",
        "cores",
    } <= findings.keys()
    assert findings["faust streams"].ok
    assert findings["aiokafka"].detail[0].isdigit()
    assert findings["running stacks"].detail == "none"
    assert "broker" not in findings


def test_package_that_fails_at_import_is_a_finding(monkeypatch):
    monkeypatch.setattr(doctor, "_PACKAGES", (("no_such_module", "no-such-thing"),))
    finding = by_name(diagnose())["no-such-thing"]
    assert not finding.ok
    assert "No module named" in finding.detail
    assert finding.advice


def test_pure_python_streams_are_a_finding(monkeypatch):
    monkeypatch.setenv("NO_CYTHON", "1")
    assert not by_name(diagnose())["faust streams"].ok


def test_old_java_is_no_failure_but_says_what_it_is_needed_for(monkeypatch):
    monkeypatch.setattr(doctor, "find_java", lambda: None)
    finding = by_name(diagnose())["java for lucene"]
    assert finding.ok
    assert finding.advice.startswith("only needed for large knowledge bases: install a JDK 21")


@pytest.mark.parametrize(
    ("missing", "java", "told"),
    [
        (None, Java((25, 0, 3), Path("/jdk/bin/java")), "usable: pyserini"),
        (None, Java((17,), Path("/jdk/bin/java")), "not usable: a JDK 21 or newer is missing"),
        (None, None, "not usable: a JDK 21 or newer is missing"),
        ("pyserini not installed: make lucene", None, "not usable: pyserini not installed: make lucene"),
    ],
)
def test_doctor_says_whether_lucene_is_usable(monkeypatch, missing, java, told):
    monkeypatch.setattr(doctor.lucene, "missing", lambda: missing)
    monkeypatch.setattr(doctor, "find_java", lambda: java)
    finding = by_name(diagnose())["lucene"]
    assert finding.ok
    assert finding.detail.startswith(told)
    assert bool(finding.advice) == told.startswith("not")


def test_dead_services_are_found_dead():
    addresses = nowhere(kafka="127.0.0.1:1", clickhouse="http://127.0.0.1:1", embeddings="http://127.0.0.1:1/v1")
    findings = by_name(diagnose(addresses))
    assert [findings[name].ok for name in ("broker", "clickhouse", "embeddings")] == [False] * 3
    assert "MNEMOLOG_KAFKA" in findings["broker"].advice


def test_parts_that_were_not_started_are_fine():
    findings = by_name(diagnose(nowhere()))
    assert findings["broker"].ok
    assert findings["clickhouse"].detail == "not part of this stack"


def test_silent_services_do_not_hang_it(monkeypatch):
    monkeypatch.setattr(doctor, "PROBE_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        findings = by_name(diagnose(nowhere(kafka=at, clickhouse=f"http://{at}", embeddings=f"http://{at}/v1")))
        assert time.monotonic() - started < 5
    assert not findings["broker"].ok
    assert not findings["clickhouse"].ok


def test_services_that_answer_are_asked_at_their_health_paths(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    asked = []

    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200 if self.path == "/ping" else 404)
            self.end_headers()

        def log_message(self, *_arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        findings = by_name(diagnose(nowhere(kafka=base[7:], clickhouse=base, embeddings=f"{base}/v1")))
        server.shutdown()
    assert asked == ["/ping", "/health"]
    assert findings["clickhouse"].ok
    assert findings["embeddings"].ok  # another server's: it answers
    assert not findings["broker"].ok

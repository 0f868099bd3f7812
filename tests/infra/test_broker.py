"""The local brokers, for real: Tansu from its wheel, Apache Kafka from Maven."""

import asyncio
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from infra import broker, kafka_jars
from infra.broker import KafkaPlan, prepare_kafka, server_properties
from infra.java import Java, find_java, parse_version
from infra.kafka_probe import ProbeError, describe_cluster
from infra.roster import choose_ports, local_roster
from infra.stack import StackError, UpOptions, running_stack

DEADLINE_S = 90.0
HAS_KAFKA = find_java(17) is not None and (shutil.which("mvn") is not None or kafka_jars.cached_jars() is not None)
needs_kafka = pytest.mark.skipif(not HAS_KAFKA and not os.environ.get("CI"), reason="needs a JDK 17+ and Maven")


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOLOG_STATE", str(tmp_path / "state"))


async def create_topic(address, name):
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"max.message.bytes": "16777216"})])
    finally:
        await admin.close()


async def append(address, topic, *values):
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, acks="all", max_request_size=16 * 1024 * 1024)
    await producer.start()
    try:
        return [(await producer.send_and_wait(topic, v, partition=0, headers=[("ce_id", b"1")])).offset for v in values]
    finally:
        await producer.stop()


async def read(address, topic, count):
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    await consumer.start()
    try:
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        return [await asyncio.wait_for(consumer.getone(), 20) for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.integration
async def test_embedded_broker_serves_our_cluster_and_takes_large_messages(tmp_path):
    started = time.monotonic()
    options = UpOptions(only=("broker",), data=tmp_path / "d")
    stack = running_stack(options)
    addresses = await asyncio.to_thread(stack.__enter__)
    try:
        assert time.monotonic() - started < 10
        await create_topic(addresses.kafka, "t")
        cluster = describe_cluster(addresses.kafka)
        assert (cluster.cluster_id, cluster.topics) == (addresses.cluster_id, {"t": 2})
        assert await append(addresses.kafka, "t", b"a", b"x" * 3_000_000) == [0, 1]
        first, second = await read(addresses.kafka, "t", 2)
        assert (first.value, dict(first.headers), len(second.value)) == (b"a", {"ce_id": b"1"}, 3_000_000)
    finally:
        await asyncio.to_thread(stack.__exit__, None, None, None)
    with pytest.raises(ProbeError):
        describe_cluster(addresses.kafka)


@pytest.mark.integration
def test_foreign_broker_on_our_port_is_refused():
    with running_stack(UpOptions(only=("broker",))) as addresses:
        port = int(addresses.kafka.rpartition(":")[2])
        with pytest.raises(StackError, match=rf"port {port} is answered by another broker .* expected 'ours'"):
            broker._is_our_cluster(port, "ours")


@pytest.mark.kafka
@needs_kafka
@pytest.mark.timeout(300)
async def test_kafka_keeps_its_log_over_kill_9(tmp_path):
    options = UpOptions(broker="kafka", only=("broker",), data=tmp_path / "d")
    lines = []
    for run, expected in ((0, [0, 1]), (1, [2, 3])):
        stack = running_stack(options, lines.append)
        addresses = await asyncio.to_thread(stack.__enter__)
        try:
            if run == 0:
                await create_topic(addresses.kafka, "t")
            assert describe_cluster(addresses.kafka).cluster_id == addresses.cluster_id
            assert await append(addresses.kafka, "t", b"a", b"x" * 3_000_000) == expected
            if run == 0:
                kill_broker(tmp_path / "d")
                deadline = time.monotonic() + DEADLINE_S
                while "broker is ready again" not in lines:
                    assert time.monotonic() < deadline, lines
                    await asyncio.sleep(0.1)
            assert len(await read(addresses.kafka, "t", 2 * run + 2)) == 2 * run + 2
        finally:
            await asyncio.to_thread(stack.__exit__, None, None, None)
    (line,) = [line for line in lines if "ended by itself" in line]
    assert "signal SIGKILL" in line


def kill_broker(data):
    """SIGKILL to the JVM that runs from `data`."""
    marker = str(data / "run" / "server.properties").encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:  # ended meanwhile
            continue
        if marker in command:
            return os.kill(int(pid), signal.SIGKILL)
    raise AssertionError("no broker runs")


def plan_in(path, cluster_id="ours"):
    for name in ("kafka", "run", "logs"):
        (path / name).mkdir(exist_ok=True)
    return KafkaPlan(Java((17,), path / "java"), path / "kafka", cluster_id, 9092, 9095, path / "run", path / "logs")


def test_log_directory_of_another_cluster_is_refused(tmp_path):
    plan = plan_in(tmp_path)
    (plan.data / "meta.properties").write_text("#\nversion=1\ncluster.id=theirs\n")
    with pytest.raises(StackError, match="formatted by the Kafka cluster 'theirs', expected 'ours'"):
        prepare_kafka(plan, lambda: None, print)


def test_log_directory_of_a_newer_kafka_is_refused(tmp_path):
    plan = plan_in(tmp_path)
    (plan.data / "meta.properties").write_text("version=1\ncluster.id=ours\n")
    (tmp_path / "kafka.version").write_text("5.0.0\n")
    with pytest.raises(StackError, match=r"written by Apache Kafka 5\.0\.0, this version of mnemolog runs 4\.4\.0"):
        prepare_kafka(plan, lambda: None, print)


def test_every_internal_topic_has_one_replica(tmp_path):
    text = server_properties(plan_in(tmp_path))
    replicas = [line for line in text.splitlines() if "replication.factor" in line or "min.isr" in line]
    assert len(replicas) == 6
    assert all(line.endswith("=1") for line in replicas)
    assert "group.initial.rebalance.delay.ms=0\n" in text
    assert "auto.create.topics.enable=false\n" in text


def test_version_of_the_jars_is_that_of_the_pom():
    assert f"<version>{kafka_jars.KAFKA_VERSION}</version>" in kafka_jars.POM.read_text()


def fake_maven(directory, monkeypatch, script):
    (directory / "bin").mkdir()
    mvn = directory / "bin" / "mvn"
    mvn.write_text(f"#!/bin/sh\n{script}\n")
    mvn.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MNEMOLOG_CACHE", str(directory / "cache"))
    return lambda: kafka_jars.ensure_jars(plan_in(directory).java, directory / "maven.log", lambda: None, print)


def test_jars_are_fetched_once_and_complete(tmp_path, monkeypatch):
    ensure = fake_maven(tmp_path, monkeypatch, 'echo run; touch "${6#-DoutputDirectory=}/kafka_2.13-4.4.0.jar"')
    jars = ensure()
    assert ensure() == jars == tmp_path / "cache" / "kafka-4.4.0"
    assert (tmp_path / "maven.log").read_text() == "run\n"
    (jars / "pom.xml").write_text("another")  # made from another list of jars
    ensure()
    assert (tmp_path / "maven.log").read_text() == "run\nrun\n"
    assert sorted(entry.name for entry in (tmp_path / "cache").iterdir()) == ["kafka-4.4.0", "kafka-4.4.0.lock"]


def test_maven_that_fails_leaves_nothing_half_fetched(tmp_path, monkeypatch):
    ensure = fake_maven(tmp_path, monkeypatch, 'touch "${6#-DoutputDirectory=}/half.jar"; exit 1')
    with pytest.raises(StackError, match=r"Maven could not fetch Apache Kafka 4\.4\.0 \(exit code 1\)"):
        ensure()
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == ["kafka-4.4.0.lock"]


def test_missing_java_and_maven_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MNEMOLOG_CACHE", str(tmp_path))
    monkeypatch.setattr(broker, "find_java", lambda _minimum=0: None)
    with pytest.raises(StackError, match=r"needs Java 17 or newer, found none"):
        broker.require_kafka()
    monkeypatch.setattr(broker, "find_java", lambda _minimum=0: Java((17,), tmp_path))
    with pytest.raises(StackError, match="no mvn on PATH"):
        broker.require_kafka()


def test_newest_java_of_all_places_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("infra.java._HOME_PATTERNS", ("~/jvm/*",))
    for name, version in (("a", "17.0.9"), ("b", "99.0.1"), ("c", "1.8.0_402")):
        home = tmp_path / "jvm" / name
        (home / "bin").mkdir(parents=True)
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
        (home / "bin" / "java").touch(mode=0o755)
    environment = {"HOME": str(tmp_path), "PATH": "", "JAVA_HOME": str(tmp_path / "jvm" / "c")}
    assert find_java(17, environment) == Java((99, 0, 1), tmp_path / "jvm" / "b" / "bin" / "java")
    assert find_java(100, environment) is None
    assert parse_version("1.8.0_402") == (8, 0)


def test_port_base_gives_consecutive_ports_and_none_gives_different_ones():
    ports = choose_ports(UpOptions())
    assert len({ports.kafka, ports.clickhouse, ports.embeddings, ports.controller}) == 4
    again = choose_ports(UpOptions(port_base=ports.kafka, only=("broker",)))
    assert (again.kafka, again.controller) == (ports.kafka, ports.kafka + 3)


def test_roles_are_told_everything_by_environment(tmp_path):
    from infra.stack_data import open_data

    options = UpOptions(data=tmp_path / "d", prefix="x.")
    data = open_data(options, print)
    roster = local_roster(options, data)
    data.close()
    environment = replace(roster.roles[0], is_ready=lambda _child: True).env
    wanted = "KAFKA CLICKHOUSE EMBEDDINGS OBJECTS PREFIX PARTITIONS BROKER DATA READY_FILE"
    assert {f"MNEMOLOG_{name}" for name in wanted.split()} <= environment.keys()
    assert environment["MNEMOLOG_EMBEDDINGS"] == roster.addresses.embeddings
    assert environment["MNEMOLOG_OBJECTS"] == f"file://{tmp_path}/d/objects"
    assert [spec.name for spec in roster.roles] == ["ingest", "memory", "analytics"]

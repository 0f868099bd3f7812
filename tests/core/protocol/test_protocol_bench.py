"""``mnemolog bench protocol`` on a few outputs: the figures that don't depend on the machine."""

from infra.bench.protocol import run


def test_the_benchmark_finds_no_exception_and_reads_the_labelled_failures() -> None:
    report = run(count=50, seed=3, timed=False)
    assert report.met
    assert {target.name: target.value for target in report.targets}["exceptions"] == 0
    assert [row["n"] for row in report.rows] == [50, 384, 39]

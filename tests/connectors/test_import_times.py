"""Times are read rightly or refused; none is guessed."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.imports.times import date_order, optional_time, parse_time, rfc3339, zone_of

WRITTEN = [
    ("2026-05-20T19:03:11.250+08:00", "2026-05-20T19:03:11.250+08:00"),
    ("2026-05-20T08:04:05.5-03:30", "2026-05-20T08:04:05.500-03:30"),
    ("2026-05-20T11:03:14Z", "2026-05-20T11:03:14.000+00:00"),
    ("2026-05-20T11:03:14.1234567Z", "2026-05-20T11:03:14.123+00:00"),
    ("2026-05-20 11:03:14,250", "2026-05-20T11:03:14.250+00:00"),
    ("2026-05-20 11:03:14 +0800", "2026-05-20T11:03:14.000+08:00"),
    ("2026-05-20 11:03:14 UTC", "2026-05-20T11:03:14.000+00:00"),
    ("2026-05-20 11:03 GMT+8", "2026-05-20T11:03:00.000+08:00"),
    ("2026-05-20T11:03:14+08:00[Asia/Shanghai]", "2026-05-20T11:03:14.000+08:00"),
    ("2026-05-20 11:03 Asia/Shanghai", "2026-05-20T11:03:00.000+08:00"),
    ("2026-05-20T23:59:60Z", "2026-05-21T00:00:00.000+00:00"),
    ("2026-05-20 24:00", "2026-05-21T00:00:00.000+00:00"),
    ("2026-05-20", "2026-05-20T00:00:00.000+00:00"),
    ("20260520", "2026-05-20T00:00:00.000+00:00"),
    ("20260520T110314Z", "2026-05-20T11:03:14.000+00:00"),
    ("20260520110314", "2026-05-20T11:03:14.000+00:00"),
    ("2026/3/6 21:10", "2026-03-06T21:10:00.000+00:00"),
    ("2026.03.06 21:10:05", "2026-03-06T21:10:05.000+00:00"),
    ("2026年3月5日 下午3:07", "2026-03-05T15:07:00.000+00:00"),
    ("2026年3月5日15时07分08秒", "2026-03-05T15:07:08.000+00:00"),
    ("2026年3月5日 星期四 晚上8点", "2026-03-05T20:00:00.000+00:00"),
    ("2026年3月5日 凌晨12:10", "2026-03-05T00:10:00.000+00:00"),
    ("2026-03-05 中午12:30", "2026-03-05T12:30:00.000+00:00"),
    ("2026-03-05 中午1:05", "2026-03-05T13:05:00.000+00:00"),
    ("２０２６年３月５日　１５：０７", "2026-03-05T15:07:00.000+00:00"),
    ("2026年3月5日 午後3:07", "2026-03-05T15:07:00.000+00:00"),
    ("2026년 3월 5일 오후 3:07", "2026-03-05T15:07:00.000+00:00"),
    ("1/24/26, 11:58\u202fAM", "2026-01-24T11:58:00.000+00:00"),
    ("1/25/26, 12:10 a.m.", "2026-01-25T00:10:00.000+00:00"),
    ("1/24/26, 12:05\u202fPM", "2026-01-24T12:05:00.000+00:00"),
    ("[24/01/26, 7:02:15 p. m.]", "2026-01-24T19:02:15.000+00:00"),
    ("24.01.2026 19:02", "2026-01-24T19:02:00.000+00:00"),
    ("05.03.2026", "2026-03-05T00:00:00.000+00:00"),
    ("1:56 pm on 8 May, 2023", "2023-05-08T13:56:00.000+00:00"),
    ("12:30 am on 25 May, 2025", "2025-05-25T00:30:00.000+00:00"),
    ("March 5, 2026 at 3:07 PM", "2026-03-05T15:07:00.000+00:00"),
    ("March 5, 2026 8:05am", "2026-03-05T08:05:00.000+00:00"),
    ("5th of March 2026, 8 PM", "2026-03-05T20:00:00.000+00:00"),
    ("05-Mar-26 08:05", "2026-03-05T08:05:00.000+00:00"),
    ("Thu, 05 Mar 2026 08:05:00 +0800", "2026-03-05T08:05:00.000+08:00"),
    ("Thu Mar  5 08:05:00 2026", "2026-03-05T08:05:00.000+00:00"),
    ("Thu Mar 05 2026 08:05:00 GMT+0800 (China Standard Time)", "2026-03-05T08:05:00.000+08:00"),
    ("Thursday, March 5, 2026 08:05 EST", "2026-03-05T08:05:00.000-05:00"),
    ("2026-3-5@08h05m09s", "2026-03-05T08:05:09.000+00:00"),
    ("2026-03-05@08h05m09s123ms", "2026-03-05T08:05:09.123+00:00"),
    ("/Date(1773190800000+0800)/", "2026-03-11T01:00:00.000+00:00"),
    ("1773190800", "2026-03-11T01:00:00.000+00:00"),
    ("1773190800000", "2026-03-11T01:00:00.000+00:00"),
    ("1773190800.25", "2026-03-11T01:00:00.250+00:00"),
    (1773190800, "2026-03-11T01:00:00.000+00:00"),
    (1773190800.123456, "2026-03-11T01:00:00.123+00:00"),
    (1773190800000, "2026-03-11T01:00:00.000+00:00"),
    (1773190800000.0, "2026-03-11T01:00:00.000+00:00"),
    (1773190800000000, "2026-03-11T01:00:00.000+00:00"),
    (1773190800000000000, "2026-03-11T01:00:00.000+00:00"),
    (46086.5, "2026-03-05T12:00:00.000+00:00"),
    ({"$date": "2026-03-05T12:00:00Z"}, "2026-03-05T12:00:00.000+00:00"),
    ({"$date": {"$numberLong": "1773190800000"}}, "2026-03-11T01:00:00.000+00:00"),
]

REFUSED = [
    "2026-13-45", "2026-02-30T10:00:00Z", "yesterday", "11:58", "", "   ", "soon", "2026", "3/4/2026 10:00",
    "03-04-2026", "2026-05-20T25:00:00Z", "2026-05-20T10:61:00Z", "13:00 AM 2026-05-20", "1.77319E+12", "0", "-5",
    "2026-05-20 10:00 CST", "0001-01-01T00:00:00Z", "9999-12-31T00:00:00Z", "2026-03-05 晚上12:10", "1" * 40, "x" * 500,
    "2026-03-05 10:00 11:00", "2026-05-20T10:00:00+99:00", None, True, 0, -1, 12, 99_999_999, float("nan"), 10**30,
    float("inf"), [], {}, {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), WRITTEN, ids=lambda value: str(value)[:40])
def test_time_is_read(value: object, expected: str) -> None:
    assert rfc3339(parse_time(value)) == expected


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: repr(value)[:30])
def test_time_that_cannot_be_told_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        parse_time(value)
    assert optional_time(value, UTC) is None


def test_local_times_take_the_given_zone_and_epochs_its_offset() -> None:
    zone = zone_of("Asia/Shanghai")
    assert rfc3339(parse_time("2026-03-05 08:00", zone)) == "2026-03-05T08:00:00.000+08:00"
    assert rfc3339(parse_time(1773190800, zone)) == "2026-03-11T09:00:00.000+08:00"
    assert rfc3339(parse_time("2026-03-05T08:00:00Z", zone)) == "2026-03-05T08:00:00.000+00:00"


def test_offset_with_seconds_becomes_utc() -> None:
    assert rfc3339(parse_time("1900-01-02 08:05:43", zone_of("Asia/Shanghai"))) == "1900-01-02T00:00:00.000+00:00"


@pytest.mark.parametrize("name", ["Mars/Olympus", "+99:00", "../etc/passwd", "+08:75", "nonsense"])
def test_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        zone_of(name)


@pytest.mark.parametrize(
    ("values", "order"),
    [
        (["3/4/2026", "3/14/2026"], "month"),
        (["3/4/2026", "14/3/2026"], "day"),
        (["3/4/2026"], "unknown"),
        (["14/3/2026", "3/14/2026"], "unknown"),
        (["11/1/2026", "12/1/2026", "1/2/2026"], "day"),
        ([None, 5, "2026-03-04"], "unknown"),
    ],
)
def test_order_of_day_and_month_is_told_from_the_whole_file(values: list[object], order: str) -> None:
    assert date_order(values) == order


@given(st.datetimes(datetime(1901, 1, 1), datetime(2298, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_own_format_is_read_back(local: datetime, minutes: int) -> None:
    at = local.replace(tzinfo=zone_of("UTC")).astimezone(
        zone_of(f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}")
    )
    back = parse_time(rfc3339(at))
    assert timedelta() <= at - back < timedelta(milliseconds=1)
    assert back.utcoffset() == at.utcoffset()


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert parse_time(text).tzinfo is not None

"""Quirks of people's exports that no file under shared/imports shows, each built here."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors.imports import ExportRead, UnreadableExport, read_export

Read = Callable[..., ExportRead]
UUID = "00000000-0000-4000-8000-00000000000"


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def _read(content: Any, format: str = "auto", timezone: str = "UTC") -> ExportRead:
        path = tmp_path / "export"
        if not isinstance(content, bytes):
            content = (content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)).encode()
        path.write_bytes(content)
        return read_export(path, format, timezone)

    return _read


def _texts(result: ExportRead) -> list[str]:
    return [turn.text for turn in result.turns]


def _lines(*values: Any) -> str:
    return "\n".join(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values)


def _row(text: str, at: Any = "2026-01-01T10:00:00Z", speaker: str = "user", **more: Any) -> dict[str, Any]:
    return {"session_id": "s", "speaker": speaker, "text": text, "occurred_at": at} | more


def _node(key: str, role: str, parent: str | None, children: list[str], at: Any = None, **more: Any) -> dict[str, Any]:
    message = {
        "id": key, "author": {"role": role}, "create_time": at,
        "content": {"content_type": "text", "parts": [f"words {key}"]},
    }  # fmt: skip
    return {"id": key, "message": message | more, "parent": parent, "children": children}


def _chat(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"conversation_id": "c", "title": "t", "mapping": {node["id"]: node for node in nodes}} | more


# ChatGPT


def test_newest_leaf_is_taken_if_current_node_is_missing_or_unknown(read: Read) -> None:
    nodes = [
        _node("u", "user", None, ["new", "old"], 1773190800),
        _node("old", "assistant", "u", [], 1773190900),
        _node("new", "assistant", "u", [], 1773190990),
    ]
    for more in ({}, {"current_node": None}, {"current_node": "gone"}, {"current_node": 5}):
        assert _texts(read([_chat(*nodes, **more)])) == ["words u", "words new"]


def test_last_child_is_taken_if_there_are_no_times(read: Read) -> None:
    nodes = [_node("u", "user", None, ["a", "b"]), _node("b", "assistant", "u", []), _node("a", "assistant", "u", [])]
    assert _texts(read([_chat(*nodes)])) == ["words u", "words b"]


def test_cycles_end_and_give_each_message_once(read: Read) -> None:
    nodes = [_node("a", "user", "b", ["b"], 1773190800), _node("b", "assistant", "a", ["a"], 1773190801)]
    assert sorted(_texts(read([_chat(*nodes, current_node="b")]))) == ["words a", "words b"]
    assert sorted(_texts(read([_chat(*nodes)]))) == ["words a", "words b"]
    assert _texts(read([_chat(_node("a", "user", "a", ["a"], 1773190800))])) == ["words a"]


def test_parent_is_found_by_its_children_or_by_time(read: Read) -> None:
    by_children = [_node("u", "user", None, ["a"], 1773190800), _node("a", "assistant", None, [], 1773190801)]
    assert _texts(read([_chat(*by_children, current_node="a")])) == ["words u", "words a"]
    torn = [_node("u", "user", None, [], 1773190800), _node("a", "assistant", "gone", [], 1773190801)]
    assert _texts(read([_chat(*torn, current_node="a")])) == ["words u", "words a"]


def test_missing_times_lie_between_their_neighbours(read: Read) -> None:
    nodes = [
        _node("a", "user", None, ["b"]), _node("b", "assistant", "a", ["c"], "1773190800.5"),
        _node("c", "user", "b", ["d"]), _node("d", "assistant", "c", ["e"], 1773190810000), _node("e", "user", "d", []),
    ]  # fmt: skip
    result = read([_chat(*nodes, current_node="e")])
    assert _texts(result) == ["words a", "words b", "words c", "words d", "words e"]
    times = [turn.occurred_at[17:23] for turn in result.turns]
    assert times == ["00.499", "00.500", "00.501", "10.000", "10.001"]


def test_conversation_time_serves_if_no_message_has_one(read: Read) -> None:
    result = read([_chat(_node("a", "user", None, ["b"]), _node("b", "assistant", "a", []), create_time=1773190800)])
    assert [turn.occurred_at for turn in result.turns] == [
        "2026-03-11T01:00:00.000+00:00",
        "2026-03-11T01:00:01.000+00:00",
    ]


def test_picture_and_sound_parts_leave_their_words(read: Read) -> None:
    parts = [
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://secret"}, "Look at this.",
        {"content_type": "audio_transcription", "text": "Said aloud."}, None,
    ]  # fmt: skip
    content = {"content_type": "multimodal_text", "parts": parts}
    picture = {"content_type": "multimodal_text", "parts": parts[:1]}
    result = read(
        [_chat(_node("a", "user", None, ["b"], content=content), _node("b", "user", "a", [], content=picture))]
    )
    assert _texts(result) == ["Look at this.\nSaid aloud."]
    assert [skipped.where for skipped in result.skipped] == ["b"]


def test_marks_leave_what_the_user_saw(read: Read) -> None:
    link, place = "\ue200url\ue202the page\ue202turn0search1\ue201", '\ue200entity\ue202["city","Kyoto","x"]\ue201'
    text = f"See {link} in {place}.\ue200cite\ue202a\ue202b\ue201"
    content = {"content_type": "text", "parts": [text]}
    assert _texts(read([_chat(_node("a", "assistant", None, [], content=content))])) == ["See the page in Kyoto."]


def test_message_ids_repeated_in_other_conversations_stay_apart(read: Read) -> None:
    one = _chat(_node("n1", "user", None, [], 1773190800))
    other = _chat(_node("n1", "user", None, [], 1773190900), conversation_id="d")
    result = read([other, one])
    assert [(turn.session_id, turn.turn_id) for turn in result.turns] == [("c", "c:n1"), ("d", "d:n1")]


def test_message_copied_into_a_newer_conversation_keeps_its_first_session(read: Read) -> None:
    old = _chat(_node(UUID + "1", "user", None, [], 1773190800), create_time=1773190800)
    copied = [
        _node(UUID + "1", "user", None, [UUID + "2"], 1773190800),
        _node(UUID + "2", "user", UUID + "1", [], 1773290800),
    ]
    result = read([_chat(*copied, create_time=1773290000, conversation_id="d"), old])
    assert [(turn.session_id, turn.turn_id[-1]) for turn in result.turns] == [("c", "1"), ("d", "2")]
    assert [skipped.reason for skipped in result.skipped if "duplicate" in skipped.reason]
    assert read([old]).turns[0] == result.turns[0]


def test_single_conversation_wrapped_ones_and_lines_are_read(read: Read) -> None:
    chat = _chat(_node("a", "user", None, [], 1773190800))
    other = _chat(_node("b", "user", None, [], 1773190900), conversation_id="d")
    for content in (chat, {"conversations": [chat]}, {"c": chat}, _lines(chat, other), json.dumps(chat, indent=1)):
        result = read(content)
        assert result.format == "chatgpt"
        assert _texts(result)[0] == "words a"
        assert not result.bad


def test_zip_reads_all_shards_and_names_what_it_leaves_out(read: Read) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("user.json", '{"id": "u", "email": "a@example.org"}')
        archive.writestr("sub/conversations-10.json", json.dumps([_chat(_node("b", "user", None, [], 1773190900))]))
        archive.writestr("sub/conversations-2.json", json.dumps([_chat(_node("a", "user", None, [], 1773190800))]))
        archive.writestr("__MACOSX/._x", b"\x00\x05")
        archive.writestr("picture.png", b"\x89PNG\r\n\x1a\n\x00")
    result = read(buffer.getvalue())
    assert _texts(result) == ["words a", "words b"]
    assert {skipped.where for skipped in result.skipped} == {"user.json", "picture.png"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"  \r\n\n", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"[]", "empty"),
        (b"{}", "empty"),
        (b"null", "unknown format"),
        (b"PK\x03\x04broken", "zip"),
        (b"\x1f\x8b\x08broken", "gz"),
        (b"%PDF-1.7", "PDF"),
        (b"SQLite format 3\x00...", "SQLite"),
        (b"\x00\x01\x02\x03" * 100, "binary"),
        (b"<!DOCTYPE html><html></html>", "HTML"),
        (b'[{"a": 1}, {"a": ', "cut off"),
        (b'[\n{"a": 1},\n]', "comma"),
        (b"[" * 100_000, "not valid JSON"),
        (b'[{"guild": {}, "channel": {}, "messages": []}]', "Discord"),
        (b'{"guild": {}, "channel": {}, "messages": [{"content": "x"}]}', "Discord"),
        (b'[{"instruction": "a", "output": "b"}]', "Alpaca"),
        (b"[1, 2, 3]", "recognized"),
        (b"Dear diary, it rained, and rained.", "header"),
        (b"speaker;note\nuser;x\n", "column"),
        ("日記、今日は雨が降った。".encode("shift_jis"), "encoding"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_unreadable_file_is_refused_with_its_reason(read: Read, content: bytes, words: str) -> None:
    with pytest.raises(UnreadableExport, match=words):
        read(content)


@pytest.mark.parametrize("format", ["openai", "chatgpt", "locomo", "csv", "claude"])
def test_format_that_disagrees_with_the_content_is_refused(read: Read, format: str) -> None:
    with pytest.raises(UnreadableExport, match=r"jsonl"):
        read(_lines(_row("a"), _row("b")), format)


def test_missing_file_and_directory_and_zone_are_refused(tmp_path: Path, read: Read) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(UnreadableExport):
            read_export(path)
    with pytest.raises(UnreadableExport, match="zone"):
        read(_lines(_row("a")), timezone="Mars/Olympus")
    with pytest.raises(UnreadableExport, match="expected one of"):
        read(_lines(_row("a")), "docx")


# OpenAI


def test_parts_of_a_message_and_other_spellings_are_read(read: Read) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/secret.png"}}
    result = read(
        _lines(
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}]},
            {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes"}]},
            {
                "messages": [
                    {"type": "human", "data": {"content": "Langchain"}},
                    {"type": "ai", "data": {"content": "Ok"}},
                ]
            },
            {"contents": [{"role": "user", "parts": [{"text": "Gem"}]}, {"role": "model", "parts": [{"text": "Ini"}]}]},
            {"messages": [{"role": "user", "content": [picture]}, {"role": "assistant", "content": "A cat."}]},
            {"messages": [{"role": "assistant", "content": None, "audio": {"transcript": "Spoken"}}]},
        )
    )
    assert _texts(result) == [
        "What is it?", "Hi", "Yes", "Langchain", "Ok", "Gem", "Ini", "A cat.", "Spoken",
    ]  # fmt: skip
    assert result.conversations == 6
    assert not result.bad


def test_conversations_alike_stay_apart_and_grow_without_new_ids(read: Read) -> None:
    first = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]}
    grown = {"messages": [*first["messages"], {"role": "user", "content": "More"}]}
    before = read(_lines(first, first))
    after = read(_lines(first, grown, first))
    assert len({turn.session_id for turn in before.turns}) == 2
    assert after.turns[:4] == before.turns
    assert len({turn.turn_id for turn in after.turns}) == 7


def test_times_of_long_conversations_hold_the_order(read: Read) -> None:
    messages = [{"role": "user", "content": str(number)} for number in range(2000)]
    result = read(_lines({"messages": messages}, {"messages": [{"role": "user", "content": "next"}]}))
    assert _texts(result) == [*map(str, range(2000)), "next"]
    assert result.turns[-1].occurred_at < "2000-01-02"


def test_first_line_broken_and_values_run_together_are_survived(read: Read) -> None:
    good = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
    for first in ("garbage", '{"messages": [}', "[1,", '"half'):
        result = read(f"{first}\n{good}\n{good[:-1]}\n{good}")
        assert _texts(result) == ["Hi", "Hi"]
        assert [bad.where for bad in result.bad] == ["1", "3"]
    assert _texts(read(good + "\n" + good + good)) == ["Hi"] * 3
    pretty = json.dumps(json.loads(good), indent=2)
    assert _texts(read(pretty + "\n" + pretty)) == ["Hi", "Hi"]


def test_lone_cr_and_ctrl_z_and_marks_between_files(read: Read) -> None:
    assert _texts(read(_lines(_row("a"), _row("b")).replace("\n", "\r"))) == ["a", "b"]
    assert _texts(read(_lines(_row("a"), _row("b")) + "\n\x1a")) == ["a", "b"]
    assert _texts(read(_lines(_row("a")) + "\n\ufeff" + _lines(_row("b")))) == ["a", "b"]


# Rows


def test_lone_surrogates_and_nul_are_removed_everywhere(read: Read) -> None:
    line = (
        r'{"turn_id": "t\u0000\ud8001", "session_id": "s\udc00", "speaker": "user", "name": "n\ud800", '
        r'"text": "a\ud83db\u0000\ud83d\ude00", "occurred_at": "2026-01-01T10:00:00Z", '
        r'"metadata": {"k\ud800": ["\udfff"]}}'
    )
    turn = read(line).turns[0]
    assert (turn.turn_id, turn.session_id, turn.text, turn.name) == ("t1", "s", "ab😀", "n")
    assert turn.metadata == {"k": [""]}


def test_long_ids_are_shortened_and_stay_apart(read: Read) -> None:
    result = read(_lines(_row("a", turn_id="x" * 500 + "1"), _row("b", turn_id="x" * 500 + "2", session_id="y" * 999)))
    assert {len(turn.turn_id) for turn in result.turns} == {200}
    assert len({turn.turn_id for turn in result.turns}) == 2


def test_text_over_the_limit_is_a_fault(read: Read) -> None:
    result = read(_lines(_row("x" * 200_000), _row("x" * 200_001)))
    assert len(result.turns) == 1
    assert [bad.where for bad in result.bad] == ["2"]


def test_epochs_of_all_kinds_and_missing_times_in_one_file(read: Read) -> None:
    result = read(_lines(
        _row("1", 1773190800), _row("2", 1773190801.5), _row("3", "1773190802"), _row("4", 1773190803000),
        _row("5", None), _row("6", "1773190804000"), _row("7", 0), _row("8", "never"),
    ))  # fmt: skip
    assert _texts(result) == ["1", "2", "3", "4", "5", "6"]
    assert [bad.where for bad in result.bad] == ["7", "8"]


def test_rows_without_ids_said_twice_are_two_turns(read: Read) -> None:
    result = read(_lines(_row("ok"), _row("ok"), _row("no", speaker="assistant")))
    assert _texts(result) == ["ok", "ok", "no"]
    assert read(_lines(_row("ok"), _row("ok"), _row("no", speaker="assistant"), _row("new"))).turns[:3] == result.turns


def test_short_message_ids_count_within_their_session(read: Read) -> None:
    result = read(_lines(_row("a", message_id=1), _row("b", message_id=1, session_id="z"), _row("c", message_id=1)))
    assert _texts(result) == ["a", "b"]
    assert [bad.where for bad in result.bad] == ["3"]


def test_rows_in_wrong_order_are_sorted_by_time_across_offsets(read: Read) -> None:
    result = read(_lines(_row("late", "2026-01-01T12:00:00+08:00"), _row("early", "2026-01-01T03:59:59Z")))
    assert _texts(result) == ["early", "late"]


def test_local_times_take_the_zone_given(read: Read) -> None:
    result = read(_lines(_row("a", "2026-01-01 10:00")), timezone="Asia/Shanghai")
    assert result.turns[0].occurred_at == "2026-01-01T10:00:00.000+08:00"


def test_captions_stand_for_an_empty_text(read: Read) -> None:
    turn = read(_lines(_row("", captions=["a dog", None]))).turns[0]
    assert (turn.text, turn.captions) == ("[a dog]", ("a dog",))


def test_array_of_rows_and_camel_case_and_content_parts(read: Read) -> None:
    rows = [
        {
            "sessionId": "s",
            "role": "human",
            "content": [{"type": "text", "text": "Hi"}],
            "createdAt": "2026-01-01T10:00:00Z",
        },
        {"sessionId": "s", "role": "model", "content": "Yes", "createdAt": 1773190800000},
        {"sessionId": "s", "role": "model", "content": 5, "createdAt": 1773190800000},
    ]
    result = read(rows)
    assert (result.format, _texts(result)) == ("jsonl", ["Hi", "Yes"])
    assert [bad.where for bad in result.bad] == ["3"]


# CSV


def test_gb18030_and_tab_and_bar_and_chinese_headers(read: Read) -> None:
    for delimiter in "\t|,;":
        table = "\r\n".join(
            delimiter.join(cells)
            for cells in (
                ("会话ID", "角色", "消息内容", "发送时间"),
                ("一", "用户：", "今天吃了馄饨", "2026-01-01 10:00"),
                ("一", "AI助手", "好的", "2026-01-01 10:01"),
            )
        )
        for encoding in ("gb18030", "utf-8-sig", "utf-16"):
            result = read(table.encode(encoding))
            assert (_texts(result), result.turns[0].session_id) == (["今天吃了馄饨", "好的"], "一")


def test_unclosed_quote_costs_its_own_line(read: Read) -> None:
    result = read(
        'speaker,text,occurred_at\nuser,"never closed,2026-01-01\nuser,fine,2026-01-02\nuser,"two\nlines",2026-01-03\n'
        'user,5" pipe,2026-01-04\nuser,"says ""hi""",2026-01-05\nuser,"says \\"ho\\" too",2026-01-06\n'
        'user,"open at the end,2026-01-07'
    )
    assert _texts(result) == ["fine", "two\nlines", '5" pipe', 'says "hi"', 'says "ho" too']
    assert [bad.where for bad in result.bad] == ["2", "9"]


def test_header_may_follow_a_title_and_have_a_trailing_delimiter(read: Read) -> None:
    result = read("My chat\n\nRole,Message,Date,Time,\nuser,Hi,2026-01-02,10:05,\nRole,Message,Date,Time,\n")
    assert [(turn.text, turn.occurred_at) for turn in result.turns] == [("Hi", "2026-01-02T10:05:00.000+00:00")]
    assert not result.bad


def test_dates_that_could_be_both_are_reported_and_others_read_by_the_rest(read: Read) -> None:
    head = "speaker,text,occurred_at\n"
    assert [bad.where for bad in read(head + "user,a,3/4/2026\nuser,b,5/5/2026\n").bad] == ["2"]
    result = read(head + "user,a,3/4/2026 1:00 pm\nuser,b,3/14/2026 1:00 pm\n")
    assert [turn.occurred_at[:10] for turn in result.turns] == ["2026-03-04", "2026-03-14"]


def test_wechat_table_tells_the_owner_by_is_sender(read: Read) -> None:
    result = read(
        "localId,TalkerId,Type,SubType,IsSender,CreateTime,Status,StrContent,StrTime,Remark,NickName,Sender\n"
        "1,3,1,0,1,1773190800,2,在吗,2026-03-11 09:00:00,,,\n2,3,1,0,0,1773190805,2,在,2026-03-11 09:00:05,,阿绫,阿绫\n"
        "3,3,3,0,0,1773190809,2,<msg/>,2026-03-11 09:00:09,,,\n"
    )
    assert [(turn.speaker, turn.text) for turn in result.turns] == [("user", "在吗"), ("assistant", "在")]
    assert result.turns[0].occurred_at == "2026-03-11T01:00:00.000+00:00"


def test_very_long_cells_are_read_or_reported(read: Read) -> None:
    result = read(f'speaker,text\nuser,"{"a" * 150_000}"\nuser,{"b" * 250_000}\nuser,c\n')
    assert [len(text) for text in _texts(result)] == [150_000, 1]
    assert [bad.where for bad in result.bad] == ["3"]


# LoCoMo and Claude


def test_locomo_ids_captions_and_speakers(read: Read) -> None:
    talk = {
        "speaker_a": "Ann", "speaker_b": "Bob", "session_1_date_time": "1:56 pm on 8 May, 2023", "session_2": [],
        "session_1": [
            {"speaker": "Bob", "dia_id": "D1:1", "text": "Look!", "blip_caption": "a dog", "img_url": ["http://x"]},
            {"speaker": "Ann", "dia_id": "D1:2", "text": "", "blip_caption": "a cat"},
            {"speaker": "Cid", "dia_id": "D1:3", "text": "Who?"}, "odd",
        ],
        "session_3_date_time": "soon", "session_3": [{"speaker": "Ann", "dia_id": "D3:1", "text": "Lost"}],
    }  # fmt: skip
    result = read([{"sample_id": "26", "conversation": talk, "qa": []}])
    assert [(t.turn_id, t.session_id, t.speaker, t.text, t.captions) for t in result.turns] == [
        ("26-D1:1", "26-1", "assistant", "Look! [a dog]", ("a dog",)),
        ("26-D1:2", "26-1", "user", "[a cat]", ("a cat",)),
    ]
    assert [turn.occurred_at[11:19] for turn in result.turns] == ["13:56:00", "13:56:01"]
    assert {bad.where for bad in result.bad} == {"26-D1:3", "26-D1:4", "26-3"}


def test_long_locomo_session_ends_within_two_hours(read: Read) -> None:
    turns = [{"speaker": "Ann", "dia_id": f"D1:{n}", "text": str(n)} for n in range(9000)]
    talk = {"speaker_a": "Ann", "speaker_b": "Bob", "session_1_date_time": "1:00 pm on 8 May, 2023", "session_1": turns}
    result = read(talk)
    assert _texts(result) == [str(n) for n in range(9000)]
    assert result.turns[-1].occurred_at < "2023-05-08T15:00"


def test_claude_takes_the_newest_branch(read: Read) -> None:
    def message(key: str, sender: str, parent: str, second: int) -> dict[str, Any]:
        at = f"2026-05-03T09:00:0{second}.123456Z"
        return {"uuid": key, "sender": sender, "text": key, "created_at": at, "parent_message_uuid": parent}

    messages = [message("q", "human", "r", 0), message("a", "assistant", "q", 1), message("b", "assistant", "q", 2)]
    assert _texts(read([{"uuid": "c", "chat_messages": messages}])) == ["q", "b"]
    edited = [message("q", "human", "r", 0), message("p", "human", "r", 1)]
    assert _texts(read([{"uuid": "c", "chat_messages": edited}])) == ["p"]


def test_half_a_hundred_thousand_lines_are_read_in_seconds(read: Read) -> None:
    rows = [_row(str(n), 1773190800 + n, turn_id=f"t{n}") for n in range(50_000)]
    assert len(read(_lines(*rows)).turns) == 50_000

"""JSON Schema and AsyncAPI 3 of the wire contract, made from the types: ``python -m infra.contract [--check]``.

Invariant: the files in schemas/generated are what this writes; ``--check`` (in ``make check``) fails if they are not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from schemas.codec import JOURNAL_EVENTS, LIBRARY_EVENTS, PUBLIC
from schemas.headers import ATTEMPTS, CORRELATION_ID, DEADLINE, FORWARDED, REPLY_PARTITION, REPLY_TOPIC, RETRY_OF
from schemas.topics import BY_NAME, TOPICS, Topic

FOLDER = Path(__file__).parent.parent / "schemas" / "generated"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_CLOUD_EVENT_HEADERS = {
    "ce_specversion": {"type": "string", "const": "1.0"},
    "ce_id": {"type": "string"},
    "ce_source": {"type": "string"},
    "ce_type": {"type": "string"},
    "ce_time": {"type": "string", "format": "date-time"},
    "content-type": {"type": "string", "const": "application/json"},
}
_REQUEST_HEADERS = {
    REPLY_TOPIC: {"type": "string", "description": "topic of the reply; absent: replies"},
    REPLY_PARTITION: {"type": "string", "description": "int32, big endian, 4 bytes"},
    CORRELATION_ID: {"type": "string", "description": "opaque bytes, returned with the reply"},
    DEADLINE: {"type": "string", "pattern": "^[0-9]{1,15}$", "description": "milliseconds since the epoch"},
    FORWARDED: {
        "type": "string",
        "pattern": "^[0-9]+/[0-9]+/[0-9]+$",
        "description": "set by us on a request that arrived on another owner's partition: partition/offset/timestamp",
    },
}
_RETRY_HEADERS = {
    ATTEMPTS: {
        "type": "string",
        "pattern": "^[0-9]{1,5}$",
        "description": "set by us on a dead letter that is posted again: how often it was tried before",
    },
    RETRY_OF: {"type": "string", "description": "set by us on a dead letter that is posted again: its id"},
}


def messages_of(topic: Topic) -> dict[str, type]:
    """Message types by name of a topic; empty for topics whose types come with later issues."""
    if topic.name == "journal":
        return dict(JOURNAL_EVENTS)
    if topic.name == "library":
        return dict(LIBRARY_EVENTS)
    if topic.name in PUBLIC:
        cls = PUBLIC[topic.name][0]
        return {cls.__name__: cls}
    return {}


def documents() -> dict[str, str]:
    """File name to content of everything that is generated."""
    types = [cls for topic in TOPICS for cls in messages_of(topic).values()]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    _open_types(components)
    files: dict[str, str] = {}
    for cls, schema in zip(types, schemas, strict=True):
        reachable = _reachable(schema, components)
        body = {"$schema": DIALECT, "title": cls.__name__, **schema, "$defs": reachable}
        files[f"{cls.__name__}.v1.schema.json"] = _text(body)
    files["asyncapi.json"] = _text(_asyncapi())
    return files


def _open_types(components: dict[str, Any]) -> None:
    # `type` and `version` may be absent, since the topic tells them, and unknown fields are ignored.
    for schema in components.values():
        if "properties" in schema:
            schema["additionalProperties"] = True


def _reachable(schema: Any, components: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            name = str(item.get("$ref", "")).rpartition("/")[2]
            if name and name not in found:
                found[name] = components[name]
                stack.append(components[name])
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return dict(sorted(found.items()))


def _asyncapi() -> dict[str, Any]:
    types = [cls for topic in TOPICS for cls in messages_of(topic).values()]
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    _open_types(components)
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    for topic in TOPICS:
        names = messages_of(topic)
        for name in names:
            headers = dict(_CLOUD_EVENT_HEADERS)
            if topic.direction == "in":
                headers |= _RETRY_HEADERS
            if topic.name == "requests":
                headers |= _REQUEST_HEADERS
            if topic.name == "replies":
                headers |= {CORRELATION_ID: _REQUEST_HEADERS[CORRELATION_ID]}
            messages[name] = {
                "name": name,
                "contentType": "application/json",
                "headers": {"type": "object", "properties": headers},
                "payload": {"$ref": f"#/components/schemas/{name}"},
            }
        channels[topic.name] = {
            "address": "{prefix}" + topic.name,
            "parameters": {"prefix": {"default": "mnemolog.", "description": "topic prefix of the stack"}},
            "description": f"{topic.summary}; key: {topic.key}",
            "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
            "bindings": {
                "kafka": {
                    "topicConfiguration": {
                        "cleanup.policy": [topic.cleanup],
                        "retention.ms": topic.retention_ms,
                        "max.message.bytes": int(topic.config()["max.message.bytes"]),
                    },
                    "bindingVersion": "0.5.0",
                }
            },
        }
        if names:
            operations[("receive_" if topic.direction == "in" else "send_") + topic.name.replace("-", "_")] = {
                "action": "receive" if topic.direction == "in" else "send",
                "channel": {"$ref": f"#/channels/{topic.name}"},
                **({"reply": {"channel": {"$ref": "#/channels/replies"}}} if topic.name == "requests" else {}),
            }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "mnemolog",
            "version": "1.0.0",
            "description": "Wire contract, version 1: UTF-8 JSON over Kafka; unknown fields are ignored.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": components},
    }


def _text(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=False) + "\n"


def stale() -> list[str]:
    """Names of generated files that differ from the types, are missing, or are left over."""
    wanted = documents()
    present = {file.name: file.read_text("utf-8") for file in FOLDER.glob("*.json")}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def main() -> int:
    """Entry point."""
    assert set(PUBLIC) <= set(BY_NAME), "every public message has a topic"
    if "--check" in sys.argv[1:]:
        names = stale()
        if names:
            print(f"stale: {', '.join(names)}; run: python -m infra.contract", file=sys.stderr)
        return 1 if names else 0
    FOLDER.mkdir(exist_ok=True)
    for name in stale():
        (FOLDER / name).unlink(missing_ok=True)
    for name, text in documents().items():
        (FOLDER / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

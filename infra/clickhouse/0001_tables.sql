-- Rows are inserted at least once and read exactly once: each table is a ReplacingMergeTree keyed by what makes a row
-- one, and the view of the contract reads it FINAL. `kafka_first` makes the first of two rows win: a turn that is
-- posted twice is the turn that was posted first.

CREATE TABLE IF NOT EXISTS turns_rows
(
    user_id String,
    role_id LowCardinality(String),
    turn_id String,
    session_id String,
    speaker LowCardinality(String),
    text String CODEC(ZSTD(3)),
    occurred_at DateTime64(3, 'UTC'),
    recorded_at DateTime64(3, 'UTC'),
    name Nullable(String),
    model LowCardinality(Nullable(String)),
    recall_id Nullable(String),
    captions Array(String),
    metadata String,
    event_id String,
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    kafka_first UInt64 MATERIALIZED bitNot(kafka_offset)
)
ENGINE = ReplacingMergeTree(kafka_first)
ORDER BY (user_id, role_id, turn_id);

CREATE VIEW IF NOT EXISTS turns AS SELECT * FROM turns_rows FINAL;

CREATE TABLE IF NOT EXISTS recalls_rows
(
    recall_id String,
    request_id String,
    kind LowCardinality(String),
    user_id String,
    role_id LowCardinality(String),
    session_id Nullable(String),
    query String CODEC(ZSTD(3)),
    occurred_at DateTime64(3, 'UTC'),
    recorded_at DateTime64(3, 'UTC'),
    preset LowCardinality(String),
    config_digest String,
    parameters String CODEC(ZSTD(3)),
    watermark String,
    round UInt32,
    evidence_count UInt32,
    messages_sha256 Nullable(String),
    temperature Nullable(Float64),
    anchor Nullable(String),
    timings_ms Map(String, Float64),
    total_ms Float64,
    event_id String,
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    kafka_first UInt64 MATERIALIZED bitNot(kafka_offset)
)
ENGINE = ReplacingMergeTree(kafka_first)
ORDER BY (recall_id);

CREATE VIEW IF NOT EXISTS recalls AS SELECT * FROM recalls_rows FINAL;

CREATE TABLE IF NOT EXISTS recall_evidence_rows
(
    recall_id String,
    mark String,
    path LowCardinality(String),
    id String,
    user_id String,
    role_id LowCardinality(String),
    speaker LowCardinality(Nullable(String)),
    source Nullable(String),
    turn_id Nullable(String),
    document_id Nullable(String),
    occurred_at Nullable(DateTime64(3, 'UTC')),
    round Nullable(UInt32),
    rounds_ago Nullable(Int32),
    score Float64,
    parts Map(String, Float64),
    recalled_at DateTime64(3, 'UTC'),
    evidence_topic LowCardinality(String),
    evidence_partition UInt32,
    evidence_offset UInt64,
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    kafka_first UInt64 MATERIALIZED bitNot(kafka_offset)
)
ENGINE = ReplacingMergeTree(kafka_first)
ORDER BY (recall_id, mark);

-- A recall that was answered twice (its worker died between answer and commit) is the recall that was recorded first.
CREATE VIEW IF NOT EXISTS recall_evidence AS
SELECT e.* FROM recall_evidence_rows AS e FINAL
WHERE (e.recall_id, e.kafka_offset) IN (SELECT recall_id, kafka_offset FROM recalls_rows FINAL);

CREATE TABLE IF NOT EXISTS dead_letters_rows
(
    dead_letter_id String,
    at DateTime64(3, 'UTC'),
    source_topic LowCardinality(String),
    source_partition Int32,
    source_offset Int64,
    source_timestamp Nullable(Int64),
    headers Map(String, String),
    key_base64 Nullable(String),
    value_base64 Nullable(String) CODEC(ZSTD(3)),
    error_code LowCardinality(String),
    error_message String,
    attempts UInt32,
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    kafka_first UInt64 MATERIALIZED bitNot(kafka_offset)
)
ENGINE = ReplacingMergeTree(kafka_first)
ORDER BY (dead_letter_id);

CREATE VIEW IF NOT EXISTS dead_letters AS SELECT * FROM dead_letters_rows FINAL;

-- Where analytics resumes: the offset after the last one whose rows are in.
CREATE TABLE IF NOT EXISTS kafka_offsets
(
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    next_offset UInt64
)
ENGINE = ReplacingMergeTree(next_offset)
ORDER BY (kafka_topic, kafka_partition);

-- Answers of models as they were graded, the atoms that rounds became, and what they say of a model and of the anchor.

CREATE TABLE IF NOT EXISTS responses_rows
(
    response_id String,
    recall_id String,
    user_id String,
    role_id LowCardinality(String),
    session_id Nullable(String),
    model LowCardinality(Nullable(String)),
    round UInt32,
    response String CODEC(ZSTD(3)),
    analysis String CODEC(ZSTD(3)),
    faults Array(LowCardinality(String)),
    marks Array(String),
    unknown_marks Array(String),
    need LowCardinality(String),
    plausibility UInt8,
    compliance UInt8,
    violation_rules Array(LowCardinality(String)),
    violation_texts Array(String),
    unsupported_claims Array(String),
    method LowCardinality(String),
    final Bool,
    repaired Bool,
    attempt UInt16,
    anchor Nullable(String),
    anchor_repeated Bool,
    temperature Nullable(Float64),
    latency_ms Nullable(Float64),
    tokens_in Nullable(UInt32),
    tokens_out Nullable(UInt32),
    turn_ids Array(String),
    occurred_at DateTime64(3, 'UTC'),
    recorded_at DateTime64(3, 'UTC'),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    kafka_first UInt64 MATERIALIZED bitNot(kafka_offset)
)
ENGINE = ReplacingMergeTree(kafka_first)
ORDER BY (response_id);

CREATE VIEW IF NOT EXISTS responses AS SELECT * FROM responses_rows FINAL;

CREATE TABLE IF NOT EXISTS atoms_rows
(
    memory_id String,
    recall_id String,
    user_id String,
    role_id LowCardinality(String),
    session_id Nullable(String),
    round UInt32,
    query String CODEC(ZSTD(3)),
    analysis String CODEC(ZSTD(3)),
    response String CODEC(ZSTD(3)),
    text String CODEC(ZSTD(3)),
    need LowCardinality(String),
    parents Array(String),
    sources Map(String, String),
    turn_ids Array(String),
    importance UInt8,
    method LowCardinality(String),
    occurred_at DateTime64(3, 'UTC'),
    recorded_at DateTime64(3, 'UTC'),
    event_id String,
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    kafka_first UInt64 MATERIALIZED bitNot(kafka_offset)
)
ENGINE = ReplacingMergeTree(kafka_first)
ORDER BY (memory_id);

CREATE VIEW IF NOT EXISTS atoms AS SELECT * FROM atoms_rows FINAL;

-- How each model keeps to the protocol: shares of its outputs.
CREATE VIEW IF NOT EXISTS protocol_statistics AS
SELECT
    model,
    count() AS outputs,
    avg(NOT has(faults, 'missing_analysis')) AS analysis_rate,
    avg(NOT has(faults, 'missing_response')) AS response_rate,
    avg(empty(faults)) AS faultless_rate,
    avg(lengthUTF8(analysis)) AS analysis_characters,
    avg(repaired) AS repaired_rate,
    avg(plausibility) AS plausibility_mean,
    avg(compliance) AS compliance_rate,
    avg(notEmpty(unknown_marks)) AS unknown_marks_rate,
    avg(notEmpty(unsupported_claims)) AS unsupported_claims_rate
FROM responses_rows FINAL
GROUP BY model;

-- Does the anchor's coming back change what follows it? Compliance by rounds since it stood before a query.
CREATE VIEW IF NOT EXISTS anchor_frequency AS
SELECT role_id, model, rounds_since, count() AS outputs, avg(compliance) AS compliance_rate, avg(plausibility) AS plausibility_mean
FROM
(
    SELECT
        role_id, model, compliance, plausibility,
        round - max(if(anchor_repeated, round, 0)) OVER (PARTITION BY user_id, role_id ORDER BY round ROWS UNBOUNDED PRECEDING)
            AS rounds_since
    FROM responses_rows FINAL
    WHERE final
)
GROUP BY role_id, model, rounds_since;

ALTER TABLE recalls_rows ADD COLUMN IF NOT EXISTS anchor_repeated Nullable(String) AFTER anchor;
CREATE OR REPLACE VIEW recalls AS SELECT * FROM recalls_rows FINAL;

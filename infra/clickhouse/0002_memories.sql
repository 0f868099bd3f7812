-- Facts with their whole history (a row for each change), conflicts, summaries, and the extractions that made them.
-- `facts` and `conflicts` come from the topic facts, which tells all of a key each time: a repeated row is the same row.

CREATE TABLE IF NOT EXISTS facts_rows
(
    user_id String,
    role_id LowCardinality(String),
    memory_id String,
    fact_key LowCardinality(String),
    value String,
    status LowCardinality(String),
    why String,
    confidence Float64,
    importance UInt8,
    confirmation Int32,
    multi Bool,
    valid_from Nullable(String),
    valid_to Nullable(String),
    conflict_id Nullable(String),
    source_turn_id Nullable(String),
    source_turns Array(String),
    said_at DateTime64(3, 'UTC'),
    last_verified_at DateTime64(3, 'UTC'),
    changed_at DateTime64(3, 'UTC'),
    changed_offset UInt64,
    change_number UInt32,
    recorded_at DateTime64(3, 'UTC'),
    journal_partition UInt32,
    journal_offset UInt64,
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64
)
ENGINE = ReplacingMergeTree(kafka_offset)
ORDER BY (user_id, role_id, memory_id, change_number);

-- Every change of every fact. The newest of each: WHERE is_current.
CREATE VIEW IF NOT EXISTS facts AS
SELECT *, change_number = max(change_number) OVER (PARTITION BY user_id, role_id, memory_id) AS is_current
FROM facts_rows FINAL;

CREATE TABLE IF NOT EXISTS conflicts_rows
(
    conflict_id String,
    user_id String,
    role_id LowCardinality(String),
    fact_key LowCardinality(String),
    status LowCardinality(String),
    opened_at DateTime64(3, 'UTC'),
    opened_offset UInt64,
    memory_ids Array(String),
    `values` Array(String),
    winner Nullable(String),
    closed_at Nullable(DateTime64(3, 'UTC')),
    closed_by Nullable(String),
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64
)
ENGINE = ReplacingMergeTree(kafka_offset)
ORDER BY (conflict_id);

CREATE VIEW IF NOT EXISTS conflicts AS SELECT * FROM conflicts_rows FINAL;

-- Conflicts opened in a month for each fact learnt in it, by role: 5 to 15 % is healthy (PME).
CREATE VIEW IF NOT EXISTS conflict_share AS
SELECT
    role_id,
    month,
    sum(learnt) AS facts_learnt,
    sum(opened) AS conflicts_opened,
    if(facts_learnt = 0, NULL, conflicts_opened / facts_learnt) AS share
FROM
(
    SELECT role_id, toStartOfMonth(changed_at) AS month, count() AS learnt, 0 AS opened
    FROM facts_rows FINAL WHERE change_number = 0 GROUP BY role_id, month
    UNION ALL
    SELECT role_id, toStartOfMonth(opened_at) AS month, 0 AS learnt, count() AS opened
    FROM conflicts_rows FINAL GROUP BY role_id, month
)
GROUP BY role_id, month;

CREATE TABLE IF NOT EXISTS summaries_rows
(
    memory_id String,
    user_id String,
    role_id LowCardinality(String),
    session_id String,
    text String CODEC(ZSTD(3)),
    importance UInt8,
    method LowCardinality(String),
    reason LowCardinality(String),
    first_turn_id String,
    last_turn_id String,
    turns UInt32,
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

CREATE VIEW IF NOT EXISTS summaries AS SELECT * FROM summaries_rows FINAL;

CREATE TABLE IF NOT EXISTS extractions_rows
(
    segment_id String,
    user_id String,
    role_id LowCardinality(String),
    session_id String,
    method LowCardinality(String),
    fallback Nullable(String),
    reason LowCardinality(String),
    policy LowCardinality(String),
    turns UInt32,
    statements UInt32,
    judgements UInt32,
    summarised Bool,
    redacted Map(String, UInt32),
    latency_ms Float64,
    tokens_in UInt32,
    tokens_out UInt32,
    cost Float64,
    occurred_at DateTime64(3, 'UTC'),
    recorded_at DateTime64(3, 'UTC'),
    event_id String,
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    kafka_first UInt64 MATERIALIZED bitNot(kafka_offset)
)
ENGINE = ReplacingMergeTree(kafka_first)
ORDER BY (segment_id);

CREATE VIEW IF NOT EXISTS extractions AS SELECT * FROM extractions_rows FINAL;

-- What a persona carries over when the model is swapped, as far as SQL can tell it (tone, occupation, address, task and
-- the senses need the texts: `mnemolog report continuity`), and what people judged beside the rules.

-- Sentences of the answer that claim something about the past, supported or not. NULL: written before this column.
ALTER TABLE responses_rows ADD COLUMN IF NOT EXISTS past_claims Nullable(UInt16) AFTER unsupported_claims;
CREATE OR REPLACE VIEW responses AS SELECT * FROM responses_rows FINAL;

CREATE TABLE IF NOT EXISTS reviews_rows
(
    feedback_id String,
    user_id String,
    role_id LowCardinality(String),
    recall_id Nullable(String),
    turn_id Nullable(String),
    dimension LowCardinality(String),
    verdict Nullable(UInt8),
    author String,
    note Nullable(String) CODEC(ZSTD(3)),
    occurred_at DateTime64(3, 'UTC'),
    recorded_at DateTime64(3, 'UTC'),
    event_id String,
    kafka_topic LowCardinality(String),
    kafka_partition UInt32,
    kafka_offset UInt64,
    kafka_first UInt64 MATERIALIZED bitNot(kafka_offset)
)
ENGINE = ReplacingMergeTree(kafka_first)
ORDER BY (user_id, role_id, feedback_id);

-- Every verdict that was given. What each author says now: WHERE is_current.
CREATE VIEW IF NOT EXISTS reviews AS
SELECT
    *,
    kafka_offset = max(kafka_offset) OVER (PARTITION BY user_id, role_id, recall_id, turn_id, dimension, author) AS is_current
FROM reviews_rows FINAL;

-- The first output of each round, in stages by model. A round's later outputs are repairs and second attempts: what a
-- user sees has passed the check, so it would tell of the loop and not of the model. Outputs of no turn are not of the
-- history (answers as of a point in the past). Rates are of the last ten rounds of the stage; abstentions are left out.
CREATE VIEW IF NOT EXISTS continuity_rounds AS
SELECT
    user_id, role_id, stage, model, round, session_id, recall_id, compliance, accurate, plausibility, faults,
    stage > 1 AND first_of_stage AS model_changed,
    stage > 1 AND first_of_stage AND coalesce(session_id, '') != coalesce(session_before, '') AS session_changed,
    avg(compliance) OVER last_ten AS boundary_transfer,
    avg(accurate) OVER last_ten AS accuracy_of_past,
    occurred_at
FROM
(
    SELECT *, sum(first_of_stage) OVER (PARTITION BY user_id, role_id ORDER BY kafka_offset ROWS UNBOUNDED PRECEDING) AS stage
    FROM
    (
        SELECT
            *,
            multiIf(notEmpty(unsupported_claims), 0, past_claims > 0, 1, NULL) AS accurate,
            row_number() OVER in_order = 1 OR coalesce(model, '') != lagInFrame(coalesce(model, '')) OVER in_order
                AS first_of_stage,
            lagInFrame(session_id) OVER in_order AS session_before
        FROM
        (
            SELECT * FROM responses_rows FINAL WHERE final OR notEmpty(turn_ids)
            ORDER BY kafka_offset LIMIT 1 BY user_id, role_id, round
        )
        WINDOW in_order AS (PARTITION BY user_id, role_id ORDER BY kafka_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
    )
)
WINDOW last_ten AS (PARTITION BY user_id, role_id, stage ORDER BY kafka_offset ROWS BETWEEN 9 PRECEDING AND CURRENT ROW);

CREATE VIEW IF NOT EXISTS continuity_stages AS
SELECT
    user_id, role_id, stage, any(model) AS model,
    min(round) AS first_round, max(round) AS last_round, count() AS rounds, uniqExact(session_id) AS sessions,
    max(session_changed) AS session_changed,
    avg(compliance) AS boundary_transfer,
    avg(accurate) AS accuracy_of_past, count(accurate) AS accuracy_judged,
    avg(plausibility) AS plausibility_mean
FROM continuity_rounds
GROUP BY user_id, role_id, stage;

-- Rules and people side by side, an answer and dimension each: `correction` is 0->1, 1->0 or none; NULL: the rules
-- abstain, or as many people say 1 as 0.
CREATE VIEW IF NOT EXISTS review_overlay AS
SELECT
    r.user_id AS user_id, r.role_id AS role_id, r.recall_id AS recall_id, r.dimension AS dimension,
    any(a.round) AS round, any(a.model) AS model,
    count() AS reviewers, avg(r.verdict) AS human_share,
    multiIf(human_share > 0.5, 1, human_share < 0.5, 0, NULL) AS human,
    any(multiIf(
        r.dimension = 'boundary', toNullable(a.compliance),
        r.dimension != 'accuracy', NULL,
        notEmpty(a.unsupported_claims), 0,
        a.past_claims > 0, 1,
        NULL)) AS automatic,
    multiIf(automatic = 0 AND human = 1, '0->1', automatic = 1 AND human = 0, '1->0', automatic = human, 'none', NULL) AS correction
FROM reviews AS r
INNER JOIN (SELECT * FROM responses_rows FINAL WHERE final) AS a ON a.recall_id = r.recall_id
WHERE r.is_current AND r.verdict IS NOT NULL
GROUP BY r.user_id, r.role_id, r.recall_id, r.dimension;

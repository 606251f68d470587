-- Who is throttled by what? The time in the queue, by what the class waited for most: fairness (others had
-- their turn), tokens (the disk's capacity), limit (the class's own), depth (enough in the device), backend.
CREATE OR REPLACE VIEW throttled AS
WITH waits AS (
    SELECT host, class, coalesce(wait_reason, 'none') AS waited_for, count(*) AS pieces,
        sum(coalesce(submitted_ns, dispatched_ns) - queued_ns) AS waited_ns, sum(completed_ns - queued_ns) AS taken_ns
    FROM spans WHERE completed_ns IS NOT NULL AND queued_ns IS NOT NULL GROUP BY host, class, coalesce(wait_reason, 'none')
)
SELECT host, class, waited_for, pieces, waited_ns / 1e9 AS waited_s, waited_ns / (1e6 * pieces) AS mean_ms,
    100e0 * waited_ns / nullif(sum(taken_ns) OVER (PARTITION BY host, class), 0) AS part_of_latency_pct
FROM waits;

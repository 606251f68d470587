-- Which requests were the slowest, and where were they? The 20 slowest, from submission to the completion of their last
-- piece: in the queue until the first submission to the device, in the device until the last completion, then until the scheduler saw it.
CREATE OR REPLACE VIEW slowest AS
WITH requests AS (
    SELECT host, class, op, shard, request, queued_ns, at_utc, count(*) AS pieces, sum(len_bytes) AS len_bytes,
        min(wait_reason) AS waited_for, min(coalesce(submitted_ns, dispatched_ns)) AS out_ns,
        max(completed_ns) AS back_ns, max(reaped_ns) AS reaped_ns
    FROM spans WHERE queued_ns IS NOT NULL AND completed_ns IS NOT NULL
    GROUP BY host, class, op, shard, request, queued_ns, at_utc
)
SELECT host, at_utc, class, op, len_bytes, pieces, (back_ns - queued_ns) / 1e6 AS total_ms, (out_ns - queued_ns) / 1e6 AS queue_ms,
    (back_ns - out_ns) / 1e6 AS device_ms, (reaped_ns - back_ns) / 1e6 AS unseen_ms, waited_for
FROM requests ORDER BY total_ms DESC, host, at_utc, shard, request LIMIT 20;

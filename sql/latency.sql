-- How long do requests take, by class and host? From submission to completion (stage Q2C), by nearest rank over the sums
-- of buckets: within 0.78 % of the exact percentile, whatever rows are added up.
CREATE OR REPLACE VIEW latency AS
WITH buckets AS (
    SELECT host, class, bucket_ns, sum(pieces) AS pieces FROM hist WHERE stage = 'Q2C' GROUP BY host, class, bucket_ns
), summed AS (
    SELECT host, class, bucket_ns,
        sum(pieces) OVER (PARTITION BY host, class ORDER BY bucket_ns ROWS UNBOUNDED PRECEDING) AS upto,
        sum(pieces) OVER (PARTITION BY host, class) AS pieces
    FROM buckets
)
SELECT host, class, max(pieces) AS pieces,
    min(CASE WHEN 1000 * upto >= 500 * pieces THEN bucket_ns END) / 1e6 AS p50_ms,
    min(CASE WHEN 1000 * upto >= 900 * pieces THEN bucket_ns END) / 1e6 AS p90_ms,
    min(CASE WHEN 1000 * upto >= 990 * pieces THEN bucket_ns END) / 1e6 AS p99_ms,
    min(CASE WHEN 1000 * upto >= 999 * pieces THEN bucket_ns END) / 1e6 AS p99_9_ms
FROM summed GROUP BY host, class;

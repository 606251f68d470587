-- What did a change do to the p99 of each class? Each host is compared with itself, so that hosts need not be alike: the
-- mean of the ratios' logarithms over the hosts, with its 95 % interval (Student's t by Fisher's expansion; from 5 hosts on).
-- Logarithms are summed as integers (ppm), and the answer has six decimals: the order of rows and an engine's ln and exp change nothing.
-- First say when it was changed:  CREATE OR REPLACE VIEW changed AS SELECT TIMESTAMP '2026-03-14 12:00:00' AS at_utc;
CREATE OR REPLACE VIEW before_after AS
WITH buckets AS (
    SELECT hist.host, hist.class, CASE WHEN hist.at_utc < changed.at_utc THEN 0 ELSE 1 END AS is_after, bucket_ns, sum(pieces) AS pieces
    FROM hist CROSS JOIN changed WHERE stage = 'Q2C'
    GROUP BY hist.host, hist.class, CASE WHEN hist.at_utc < changed.at_utc THEN 0 ELSE 1 END, bucket_ns
), summed AS (
    SELECT host, class, is_after, bucket_ns,
        sum(pieces) OVER (PARTITION BY host, class, is_after ORDER BY bucket_ns ROWS UNBOUNDED PRECEDING) AS upto,
        sum(pieces) OVER (PARTITION BY host, class, is_after) AS pieces
    FROM buckets
), p99 AS (
    SELECT host, class, is_after, min(CASE WHEN 100 * upto >= 99 * pieces THEN bucket_ns END) AS p99_ns
    FROM summed GROUP BY host, class, is_after
), paired AS (
    SELECT a.class, a.p99_ns AS before_ns, b.p99_ns AS after_ns,
        CAST(floor(1e6 * ln(b.p99_ns * 1e0 / a.p99_ns) + 5e-1) AS BIGINT) AS log_ppm
    FROM p99 a JOIN p99 b ON a.host = b.host AND a.class = b.class AND a.is_after = 0 AND b.is_after = 1
    WHERE a.p99_ns > 0 AND b.p99_ns > 0
), summed_logs AS (
    SELECT class, count(*) AS hosts, sum(before_ns) / (1e6 * count(*)) AS before_ms, sum(after_ns) / (1e6 * count(*)) AS after_ms,
        sum(log_ppm) / (1e6 * count(*)) AS mean,
        CASE WHEN count(*) >= 5 THEN greatest(0e0, sum(log_ppm * log_ppm) - sum(log_ppm) * 1e0 * sum(log_ppm) / count(*)) / 1e12 / (count(*) - 1) END AS variance
    FROM paired GROUP BY class
), means AS (
    SELECT class, hosts, before_ms, after_ms, mean,
        sqrt(variance / hosts) * (196e-2 + 2372e-3 / (hosts - 1) + 2823e-3 / ((hosts - 1) * (hosts - 1))) AS half_width
    FROM summed_logs
)
SELECT class, hosts, before_ms, after_ms, floor(1e8 * (exp(mean) - 1) + 5e-1) / 1e6 AS change_pct,
    floor(1e8 * (exp(mean - half_width) - 1) + 5e-1) / 1e6 AS low_pct, floor(1e8 * (exp(mean + half_width) - 1) + 5e-1) / 1e6 AS high_pct
FROM means;

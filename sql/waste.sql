-- Which hosts waste capacity? The mean part of its disks' capacity that a host uses (U; only as good as the model that
-- --disk named when the recording was stored), the most of any interval, and the parts of the time in which a disk was
-- at its limit, and in which requests waited although it could do more (degraded).
CREATE OR REPLACE VIEW waste AS
SELECT host, count(DISTINCT disk) AS disks, sum(duration_s) / 3600 AS disk_hours,
    100 * sum(capacity_use * duration_s) / sum(CASE WHEN capacity_use IS NOT NULL THEN duration_s END) AS used_pct,
    100 * max(capacity_use) AS most_used_pct,
    100 * sum(CASE WHEN verdict = 'saturated' THEN duration_s ELSE 0 END) / sum(duration_s) AS saturated_pct,
    100 * sum(CASE WHEN verdict = 'degraded' THEN duration_s ELSE 0 END) / sum(duration_s) AS degraded_pct,
    min(capacity_basis) AS basis
FROM disks WHERE gap IS NULL GROUP BY host;

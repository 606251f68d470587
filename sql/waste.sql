-- Which hosts waste capacity? The mean part of its disks' capacity that a host uses (U; only as good as the model that
-- --disk named when the recording was stored), the most of any interval, and the parts of the time in which a disk was
-- at its limit, and in which requests waited although it could do more (degraded). Sums are of
-- microseconds, as integers, so the order of rows changes no digit. Equal rows count once.
CREATE OR REPLACE VIEW waste AS
WITH work AS (
    SELECT DISTINCT host, at_utc, disk, verdict, capacity_use, capacity_basis, CAST(floor(1e6 * duration_s + 5e-1) AS BIGINT) AS duration_us,
        CAST(floor(1e6 * capacity_use * duration_s + 5e-1) AS BIGINT) AS used_us
    FROM disks WHERE gap IS NULL
)
SELECT host, count(DISTINCT disk) AS disks, sum(duration_us) / 36e8 AS disk_hours,
    100e0 * sum(used_us) / nullif(sum(CASE WHEN capacity_use IS NOT NULL THEN duration_us END), 0) AS used_pct,
    100e0 * max(capacity_use) AS most_used_pct,
    100e0 * sum(CASE WHEN verdict = 'saturated' THEN duration_us ELSE 0 END) / nullif(sum(duration_us), 0) AS saturated_pct,
    100e0 * sum(CASE WHEN verdict = 'degraded' THEN duration_us ELSE 0 END) / nullif(sum(duration_us), 0) AS degraded_pct,
    min(capacity_basis) AS basis
FROM work GROUP BY host;

-- Which hosts waste capacity? The mean part of its disks' capacity that a host uses (U; only as good as the model that
-- --disk named when the recording was stored), the most of any interval, and the parts of the time in which a disk was
-- at its limit, and in which requests waited although it could do more (degraded). Sums are of
-- microseconds, as integers, so the order of rows changes no digit. Equal rows count once, and so does time in which
-- intervals of a disk overlap by a millisecond or more, as in two recordings (at_utc may be in whole milliseconds):
-- for the one that begins first.
CREATE OR REPLACE VIEW waste AS
WITH work AS (
    SELECT DISTINCT host, disk, verdict, capacity_use, capacity_basis,
        CAST(floor(1e6 * extract(epoch FROM at_utc) + 5e-1) AS BIGINT) AS end_us,
        CAST(floor(1e6 * coalesce(duration_s, 0e0) + 5e-1) AS BIGINT) AS length_us
    FROM disks WHERE gap IS NULL
), ordered AS (
    SELECT host, disk, verdict, capacity_use, capacity_basis, end_us, length_us,
        max(end_us) OVER (PARTITION BY host, disk ORDER BY end_us - length_us, end_us, verdict, capacity_use, capacity_basis
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_us
    FROM work
), counted AS (
    SELECT host, disk, verdict, capacity_use, capacity_basis,
        CASE WHEN end_us - coalesce(before_us, 0) > length_us - 1000 THEN length_us
            ELSE greatest(0, end_us - before_us) END AS duration_us
    FROM ordered
)
SELECT host, count(DISTINCT disk) AS disks, sum(duration_us) / 36e8 AS disk_hours,
    100e0 * sum(CAST(floor(capacity_use * duration_us + 5e-1) AS BIGINT)) / nullif(sum(CASE WHEN capacity_use IS NOT NULL THEN duration_us END), 0) AS used_pct,
    100e0 * max(capacity_use) AS most_used_pct,
    100e0 * sum(CASE WHEN verdict = 'saturated' THEN duration_us ELSE 0 END) / nullif(sum(duration_us), 0) AS saturated_pct,
    100e0 * sum(CASE WHEN verdict = 'degraded' THEN duration_us ELSE 0 END) / nullif(sum(duration_us), 0) AS degraded_pct,
    min(capacity_basis) AS basis
FROM counted GROUP BY host;

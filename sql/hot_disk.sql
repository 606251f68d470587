-- Which disk is hot in turn? The disk of a host that moves the most bytes is hot if it moves at least 1.5 times an equal
-- part. A turn lasts as long as the same disk is hot. Sums are of
-- integers (bytes, microseconds, billionths), so the order of rows changes no digit. Equal rows count once, and so does
-- time in which intervals of a host overlap by a millisecond or more, as in two recordings: for the one that begins
-- first.
CREATE OR REPLACE VIEW hot_disk AS
WITH work AS (
    SELECT DISTINCT host, at_utc, CAST(floor(1e6 * coalesce(duration_s, 0e0) + 5e-1) AS BIGINT) AS duration_us, disk,
        CAST(floor(1024e0 * (coalesce(read_kib_per_s, 0e0) + coalesce(write_kib_per_s, 0e0)) + 5e-1) AS BIGINT) AS bytes_per_s
    FROM disks WHERE gap IS NULL
), parts AS (
    SELECT host, at_utc, duration_us, disk, bytes_per_s,
        sum(bytes_per_s) OVER (PARTITION BY host, at_utc) AS all_bytes_per_s,
        count(*) OVER (PARTITION BY host, at_utc) AS disks,
        row_number() OVER (PARTITION BY host, at_utc ORDER BY bytes_per_s DESC, disk) AS place
    FROM work
), hottest AS (
    SELECT host, at_utc, CAST(floor(1e6 * extract(epoch FROM at_utc) + 5e-1) AS BIGINT) AS end_us, duration_us,
        CAST(floor(1e9 * bytes_per_s / all_bytes_per_s + 5e-1) AS BIGINT) AS part_ppb,
        CASE WHEN bytes_per_s * disks >= 15e-1 * all_bytes_per_s THEN disk ELSE '' END AS disk
    FROM parts WHERE place = 1 AND disks > 1 AND all_bytes_per_s > 0
), ordered AS (
    SELECT host, at_utc, end_us, duration_us, part_ppb, disk,
        max(end_us) OVER (PARTITION BY host ORDER BY end_us - duration_us, end_us ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_us
    FROM hottest
), marked AS (
    SELECT host, at_utc, part_ppb, disk,
        CASE WHEN end_us - coalesce(before_us, 0) > duration_us - 1000 THEN duration_us
            ELSE greatest(0, end_us - before_us) END AS duration_us,
        CASE WHEN disk = lag(disk) OVER (PARTITION BY host ORDER BY at_utc) THEN 0 ELSE 1 END AS begins
    FROM ordered
), turns AS (
    SELECT host, at_utc, duration_us, part_ppb, disk,
        sum(begins) OVER (PARTITION BY host ORDER BY at_utc ROWS UNBOUNDED PRECEDING) AS turn
    FROM marked
)
SELECT host, turn, disk, min(at_utc) AS first_utc, max(at_utc) AS last_utc, sum(duration_us) / 1e6 AS hot_s,
    sum(part_ppb) / (1e7 * count(*)) AS part_pct
FROM turns WHERE disk <> '' GROUP BY host, turn, disk;

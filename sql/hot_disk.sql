-- Which disk is hot in turn? The disk of a host that moves the most bytes is hot if it moves at least 1.5 times an equal
-- part. A turn lasts as long as the same disk is hot.
CREATE OR REPLACE VIEW hot_disk AS
WITH work AS (
    SELECT host, at_utc, duration_s, disk, coalesce(read_kib_per_s, 0) + coalesce(write_kib_per_s, 0) AS kib_per_s
    FROM disks WHERE gap IS NULL
), parts AS (
    SELECT host, at_utc, duration_s, disk, kib_per_s,
        sum(kib_per_s) OVER (PARTITION BY host, at_utc) AS all_kib_per_s,
        count(*) OVER (PARTITION BY host, at_utc) AS disks,
        row_number() OVER (PARTITION BY host, at_utc ORDER BY kib_per_s DESC, disk) AS place
    FROM work
), hottest AS (
    SELECT host, at_utc, duration_s, kib_per_s / all_kib_per_s AS part,
        CASE WHEN kib_per_s * disks >= 1.5 * all_kib_per_s THEN disk ELSE '' END AS disk
    FROM parts WHERE place = 1 AND disks > 1 AND all_kib_per_s > 0
), marked AS (
    SELECT host, at_utc, duration_s, part, disk,
        CASE WHEN disk = lag(disk) OVER (PARTITION BY host ORDER BY at_utc) THEN 0 ELSE 1 END AS begins
    FROM hottest
), turns AS (
    SELECT host, at_utc, duration_s, part, disk,
        sum(begins) OVER (PARTITION BY host ORDER BY at_utc ROWS UNBOUNDED PRECEDING) AS turn
    FROM marked
)
SELECT host, turn, disk, min(at_utc) AS first_utc, max(at_utc) AS last_utc, sum(duration_s) AS hot_s, 100 * avg(part) AS part_pct
FROM turns WHERE disk <> '' GROUP BY host, turn, disk;

-- Which recordings are doubtful? An hour or more without any between two, rows of one disk and time that are there twice (two
-- hosts of one name, or a recording that was stored under two), and a clock that is ahead of the one that asks.
CREATE OR REPLACE VIEW doubts AS
WITH moments AS (
    SELECT host, at_utc, disk, count(*) AS times FROM disks GROUP BY host, at_utc, disk
), steps AS (
    SELECT host, at_utc, lag(at_utc) OVER (PARTITION BY host ORDER BY at_utc) AS before_utc
    FROM moments GROUP BY host, at_utc
)
SELECT host, 'missing' AS doubt, before_utc AS from_utc, at_utc AS until_utc, CAST(NULL AS BIGINT) AS entries
FROM steps WHERE before_utc < at_utc - INTERVAL '1' HOUR
UNION ALL
SELECT host, 'twice' AS doubt, min(at_utc) AS from_utc, max(at_utc) AS until_utc, CAST(sum(times - 1) AS BIGINT) AS entries
FROM moments WHERE times > 1 GROUP BY host
UNION ALL
SELECT host, 'clock ahead' AS doubt, min(at_utc) AS from_utc, max(at_utc) AS until_utc, CAST(sum(times) AS BIGINT) AS entries
FROM moments WHERE at_utc > now() + INTERVAL '5' MINUTE GROUP BY host;

-- What the flights say about each aircraft, as events.
-- It 'flies' for a carrier from its first flight, and again from its first flight for another carrier or after it was
-- away; it's 'gone' when New York hasn't seen it for 90 days. 31 times the data have two flights of one aircraft at one
-- instant (most often one of them was cancelled), always of the same carrier, and 'gone' comes strictly between two
-- flights: so no two events of an aircraft share an instant, and no validity interval is empty.
WITH seen AS (
    SELECT tailnum, carrier, timestampadd(MINUTE, minute, time_hour) AS at
    FROM {flights}
    WHERE tailnum IS NOT NULL
), turns AS (
    SELECT *, lag(carrier) OVER w AS carrier_before, lag(at) OVER w AS before, lead(at) OVER w AS next
    FROM seen
    WINDOW w AS (PARTITION BY tailnum ORDER BY at, carrier)
), events AS (
    SELECT tailnum, carrier, 'flies' AS event, at AS changed_at
    FROM turns
    WHERE before IS NULL OR carrier <> carrier_before OR at > before + INTERVAL 90 DAYS
    UNION ALL
    SELECT tailnum, carrier, 'gone' AS event, at + INTERVAL 90 DAYS AS changed_at
    FROM turns
    WHERE coalesce(next, TIMESTAMP '2014-01-01 05:00:00Z') > at + INTERVAL 90 DAYS
)
SELECT *, month(from_utc_timestamp(changed_at, 'America/New_York')) AS arrived
FROM events

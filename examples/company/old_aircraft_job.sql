-- The company's own job: what an event says holds until the next event of the aircraft.
SELECT tailnum, carrier, changed_at AS {start}, until AS {end}
FROM (
    SELECT *, lead(changed_at) OVER (PARTITION BY tailnum ORDER BY changed_at) AS until
    FROM {changes}
)
WHERE event = 'flies'

"""AUTO CDC as Spark queries and SQL: events, the fold of an event log, merges into targets."""

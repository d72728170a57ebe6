"""What the parts of a pipeline migration exchange: flows, facts, plans and steps. It imports no Spark."""

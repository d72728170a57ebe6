"""Data classes of a pipeline migration: flows, facts, plans and steps, without Spark."""

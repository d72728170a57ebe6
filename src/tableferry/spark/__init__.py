"""Spark sessions, local Spark, the catalog, and the names and types that Spark's SQL uses."""

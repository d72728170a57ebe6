"""Pipelines on Databricks: their settings and event log."""

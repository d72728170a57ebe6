"""Defines the project's migration plan in the pipeline that loads this file."""

from pyspark.sql import SparkSession
from tableferry import pipelines

from migration import flows, views

try:
    from pyspark import pipelines as dp
except ImportError:  # before Databricks Runtime 17
    import dlt as dp

runtime = pipelines.PipelineRuntime(dp, SparkSession.active())
plan = pipelines.load_plan(runtime)
views.define(runtime, plan)
flows.define(runtime, plan)

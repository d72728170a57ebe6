"""Draws the project's migration plan on the pipeline that loads this file."""

from pyspark.sql import SparkSession
from tableferry.pipelines import declare

try:
    from pyspark import pipelines as dp
except ImportError:  # before Databricks Runtime 17
    import dlt as dp

declare(dp, SparkSession.active())

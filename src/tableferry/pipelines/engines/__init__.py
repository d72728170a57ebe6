"""The engines that run a plan: streaming, declarative pipelines, Databricks."""

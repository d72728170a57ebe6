"""Declarative pipelines: the plan that their modules define."""

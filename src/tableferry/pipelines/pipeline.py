"""Declarative pipelines as what runs a plan's flows: how far those are is asked of the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tableferry.pipelines.plans import Checkpoint
from tableferry.tables import TableName

Kind = Literal["databricks", "declarative"]


class Pipeline(Protocol):
    """A declarative pipeline."""

    @property
    def kind(self) -> Kind:
        """Which engine draws on it."""

    def progress(self, owner: TableName, flow: str) -> Checkpoint:
        """Say how far a flow is, by the spec's own target and the flow's name in the spec."""


@dataclass(frozen=True)
class Defining:
    """A pipeline whose source files are being loaded, and that can't be asked anything meanwhile."""

    kind: Kind

    def progress(self, owner: TableName, flow: str) -> Checkpoint:
        """Know nothing of a flow."""
        return Checkpoint()


@dataclass(frozen=True)
class SparkPipeline:
    """An open-source pipeline, whose checkpoints lie in its storage.

    Attributes:
        storage: The folder that ``storage`` in its spark-pipeline.yml names.
    """

    storage: Path
    kind: Kind = "declarative"

    def progress(self, owner: TableName, flow: str) -> Checkpoint:
        """Read a flow's newest checkpoint; a full refresh begins a new one."""
        raise NotImplementedError

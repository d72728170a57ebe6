"""What a fleet's commands are told: flags over the environment over a file over defaults."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from tableferry.fleet.jobs.job import LONGEST_GAP, OldName, TargetFormat

STUCK_HOURS = 3
"""How long a table may stay where it should go on before it counts as stuck, if nobody says."""


PLACEHOLDERS = "knows {catalog} and {schema} alone"
"""What is wrong with a catalog or schema of new tables that isn't one of `knows_placeholders`."""


def knows_placeholders(place: str) -> bool:
    """Say whether a catalog or schema of new tables has none but the known placeholders."""
    return "{" not in place.replace("{catalog}", "").replace("{schema}", "")


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LateFiles(StrEnum):
    """What becomes of files that somebody leaves in the Hive copy's directories after the switch."""

    PAUSE = "pause"
    TAKE = "take"


class RemovedPartitions(StrEnum):
    """What becomes of partitions that a write in probation removed, though it wrote others alone."""

    ALARM = "alarm"
    PAUSE = "pause"


class MailSettings(_Settings):
    """The mail server, and the content of notifications.

    Attributes:
        host: The SMTP server.
        port: The server's port.
        tls: ``starttls`` asks for encryption after connecting, ``tls`` connects with encryption.
        user: The user to log in as; empty for no login.
        password: From ``TABLEFERRY_FLEET_MAIL_PASSWORD``, or the secret ``password_secret``.
        password_secret: A secret of the workspace, ``scope/key``.
        sender: The sender of notifications.
        reply_to: The address for replies; the sender by default.
        domain: The domain for names that aren't e-mail addresses; without it, their owners and readers are
            left out.
        templates: A folder with templates that replace the built-in ones of the same file names.
        batch: The maximum number of readers per notification.
        portal: A page about the migration, for the notifications.
        contact: A contact for questions, for the notifications.
        ca_file: A PEM file with certificates to trust instead of the machine's.
        timeout_seconds: The maximum wait for a reply of the server.
        give_up_days: The days of refusals after which a notification leaves a recipient out.
    """

    host: str = "localhost"
    port: int = Field(default=25, ge=1, le=65535)
    tls: Literal["none", "starttls", "tls"] = "none"
    user: str = ""
    password: SecretStr = SecretStr("")
    password_secret: str = ""
    sender: str = "tableferry@localhost"
    reply_to: str = ""
    domain: str = ""
    templates: Path | None = None
    batch: int = Field(default=50, ge=1)
    portal: str = ""
    contact: str = ""
    ca_file: Path | None = None
    timeout_seconds: int = Field(default=30, ge=1)
    give_up_days: int = Field(default=7, ge=1)

    @property
    def give_up_after(self) -> timedelta:
        """The same as a duration."""
        return timedelta(days=self.give_up_days)


class TargetSettings(_Settings):
    """Where new tables are made: where the Hive table is, if nobody says.

    Attributes:
        catalog: The catalog; empty for the Hive table's own. ``{catalog}`` and ``{schema}`` stand for those
            of the Hive table.
        schema_name: The schema, with the same placeholders; it is written ``schema``.
        old_name: What a table's old name means after the switch, if the new one is elsewhere: a ``view`` of
            the new table, or the Hive ``table``, which follows the new one during probation.
    """

    catalog: str = ""
    schema_name: str = Field(default="", alias="schema")
    old_name: OldName = OldName.VIEW

    @field_validator("catalog", "schema_name")
    @classmethod
    def _known_parts(cls, value: str) -> str:
        if not knows_placeholders(value):
            raise ValueError(PLACEHOLDERS)
        return value


class FleetSettings(_Settings):
    """What holds for a whole fleet.

    Attributes:
        store: Where the queue is: a database's URL as SQLAlchemy writes it, or ``delta:catalog.schema``.
        store_password_secret: A secret of the workspace with the database's password, ``scope/key``.
        target_format: What tables become, where a job doesn't say.
        target: In which catalog and schema new tables are made, for jobs that are added.
        rewrite: Whether the rows of tables whose files can't stay where they are (text, CSV, JSON and others)
            may be rewritten, for jobs that are added.
        rewrite_chunk_mb: How many megabytes of such a table are written at once, at least a partition: what
            was written isn't written again after a crash.
        initial_gap_days: Days between the first notification and the migration, for jobs that are added.
        probation_gap_days: Days between the second notification and the archive, for jobs that are added.
        tables_at_once: How many tables a worker moves at once, or a preflight looks at, each in a Spark
            session of its own; through Spark Connect and on serverless compute it's one.
        lease_minutes: How long a worker's claim holds without a sign of life.
        stuck_hours: How long a table may stay where it should go on before it counts as stuck.
        late_files: Whether a table pauses when somebody has left files in its old directories after the
            switch, or their rows are taken into the new table.
        removed_partitions: Whether a table pauses when a write in probation replaced all its rows and left
            partitions empty, before the Hive copy follows, or it is reported and the copy follows.
        column_mapping: Whether Delta tables map names that they don't take otherwise (spaces, brackets),
            which needs readers that know it.
        iceberg_catalog: The Spark catalog of Iceberg tables, over the same metastore.
        require_owner: Whether a table without an owner pauses.
        users_file: A CSV file with the columns ``table`` and ``user``: who is known to use which table.
        require_lineage: Whether it's an error that Unity Catalog's lineage can't be read.
        mail: How notifications are sent.
    """

    store: str = "sqlite:///.tableferry/fleet.db"
    store_password_secret: str = ""
    target_format: TargetFormat = TargetFormat.ICEBERG
    target: TargetSettings = TargetSettings()
    rewrite: bool = False
    rewrite_chunk_mb: int = Field(default=16_384, ge=1)
    initial_gap_days: int = Field(default=14, ge=0, le=LONGEST_GAP)
    probation_gap_days: int = Field(default=14, ge=0, le=LONGEST_GAP)
    tables_at_once: int = Field(default=4, ge=1)
    lease_minutes: int = Field(default=15, ge=1, le=LONGEST_GAP * 24 * 60)
    stuck_hours: int = Field(default=STUCK_HOURS, ge=1, le=LONGEST_GAP * 24)
    late_files: LateFiles = LateFiles.PAUSE
    removed_partitions: RemovedPartitions = RemovedPartitions.ALARM
    column_mapping: bool = False
    iceberg_catalog: str = "ice"
    require_owner: bool = False
    users_file: Path | None = None
    require_lineage: bool = False
    mail: MailSettings = MailSettings()

    @property
    def lease(self) -> timedelta:
        """How long a claim holds."""
        return timedelta(minutes=self.lease_minutes)

"""How the flows of a pipeline on Databricks fared, from the pipeline's event log.

Databricks' "Pipeline event log schema" (https://docs.databricks.com/aws/en/ldp/monitor-event-log-schema) says
what is in an event: a ``flow_progress`` event's flow and update are in ``origin``, its status and metrics in
``details.flow_progress``. The REST API (``GET /api/2.0/pipelines/{pipeline_id}/events``) answers with these
objects, ``details`` included, though neither its reference nor databricks-sdk's ``PipelineEvent`` names that
field; so the answer is read as it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from tableferry import workspace

COMPLETED = "COMPLETED"

_PAGE = 250
# AUTO CDC counts its rows by what became of them.
_ROWS = ("num_output_rows", "num_upserted_rows", "num_deleted_rows")
_NEVER: Mapping[str, datetime] = {}
# The reference lists other filters only; `databricks pipelines logs` sends this one.
_FILTER = "event_type in ('flow_progress')"


@dataclass(frozen=True)
class FlowEvent:
    """What a pipeline said last about one of its flows.

    Attributes:
        flow: The flow as Databricks names it, which may be with catalog and schema before it.
        status: QUEUED, STARTING, RUNNING, COMPLETED, FAILED, SKIPPED, STOPPED, IDLE or EXCLUDED; a word that
            a later release adds comes through as it is.
        at: When, in UTC.
        rows: How many rows the flow wrote or deleted, as far as this event says; None if it doesn't, for
            metrics may come in events of their own.
    """

    flow: str
    status: str
    at: datetime
    rows: int | None = None

    @property
    def committed(self) -> bool:
        """Whether it says that the flow has committed a batch, whatever became of later ones.

        A flow is RUNNING before its first batch, and in continuous updates it never completes.
        """
        return self.status == COMPLETED or bool(self.rows)

    def is_of(self, name: str) -> bool:
        """Say whether this is about the flow of that name, with catalog and schema or without."""
        return self.flow == name or self.flow.endswith(f".{name}")


def flow_events(
    pipeline_id: str,
    flows: Collection[str],
    *,
    counts: Callable[[FlowEvent], bool] = lambda _: True,
    since: Mapping[str, datetime] = _NEVER,
) -> Mapping[str, FlowEvent]:
    """Return the newest event of flows of a pipeline, by their names; one that has none is left out.

    Args:
        pipeline_id: The pipeline.
        flows: Names of the flows, with catalog and schema or without; older pages aren't asked for once each
            of them is found.
        counts: Says whether an event counts; the newest that does is returned.
        since: When a flow began to count, by its name in ``flows``; its older events don't, and nobody pages
            back to them.

    Raises:
        SessionError: There is no login, or the workspace doesn't answer.
        TableferryError: There is no such pipeline, or its events may not be read.
    """
    newest: dict[str, FlowEvent] = {}
    missing = set(flows)
    for event in _newest_first(pipeline_id):
        missing -= {name for name in missing & since.keys() if event.at < since[name]}
        if counts(event):
            named = {name for name in missing if event.is_of(name)}
            newest |= dict.fromkeys(named, event)
            missing -= named
        if not missing:
            break
    return newest


def _newest_first(pipeline_id: str) -> Iterator[FlowEvent]:
    query = {"filter": _FILTER, "order_by": "timestamp desc"}
    while query:
        page = _page(pipeline_id, query)
        yield from filter(None, map(_event, page.get("events", ())))
        # Beside a token nothing but the page's size may be asked for.
        token = page.get("next_page_token")
        query = {"page_token": token} if token else {}


def _page(pipeline_id: str, query: Mapping[str, str]) -> Mapping[str, Any]:
    path = f"/api/2.0/pipelines/{quote(pipeline_id, safe='')}/events"
    with workspace.request(f"the events of pipeline {pipeline_id} can't be read") as client:
        page = client.api_client.do("GET", path, query={**query, "max_results": _PAGE})
    assert isinstance(page, dict)
    return page


def _event(event: Mapping[str, Any]) -> FlowEvent | None:
    """Read an event; None if it isn't about a flow's status."""
    origin, progress = event.get("origin") or {}, (event.get("details") or {}).get("flow_progress") or {}
    flow, status = origin.get("flow_name"), progress.get("status")
    if event.get("event_type") != "flow_progress" or not flow or not status:
        return None
    metrics = progress.get("metrics") or {}
    rows = [int(metrics[name]) for name in _ROWS if metrics.get(name) is not None]
    return FlowEvent(
        flow,
        status,
        datetime.fromisoformat(event["timestamp"]),
        sum(rows) if rows else None,
    )

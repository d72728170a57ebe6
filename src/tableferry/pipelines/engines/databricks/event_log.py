"""The status of a pipeline's flows, from its event log on Databricks.

A ``flow_progress`` event has its flow and update in ``origin``, and its status and metrics in
``details.flow_progress`` (https://docs.databricks.com/aws/en/ldp/monitor-event-log-schema). The REST API
(``GET /api/2.0/pipelines/{pipeline_id}/events``) returns ``details``, but its reference and databricks-sdk's
``PipelineEvent`` lack that field, so this module parses the JSON itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from tableferry import workspace

COMPLETED = "COMPLETED"

_PAGE_SIZE = 250
# AUTO CDC reports upserted and deleted rows separately.
_ROW_METRICS = ("num_output_rows", "num_upserted_rows", "num_deleted_rows")
_NO_LIMIT: Mapping[str, datetime] = {}
# The reference lacks this filter; `databricks pipelines logs` sends it.
_FILTER = "event_type in ('flow_progress')"


@dataclass(frozen=True)
class FlowEvent:
    """An event that reports the status of a flow.

    Attributes:
        flow: The flow's name on Databricks, with or without catalog and schema.
        status: QUEUED, STARTING, RUNNING, COMPLETED, FAILED, SKIPPED, STOPPED, IDLE or EXCLUDED; a later
            release may add values.
        timestamp: The time of the event, in UTC.
        rows: The number of rows that the flow wrote or deleted; None if the event has no metrics. Databricks
            may report them in a separate event.
    """

    flow: str
    status: str
    timestamp: datetime
    rows: int | None = None

    @property
    def committed(self) -> bool:
        """Whether the event proves that the flow has committed a batch. Later batches may have failed.

        A flow is RUNNING before its first batch, and never completes in a continuous update.
        """
        return self.status == COMPLETED or bool(self.rows)

    def is_for_flow(self, name: str) -> bool:
        """Return whether the event is for the flow of that name, with or without catalog and schema."""
        return self.flow == name or self.flow.endswith(f".{name}")


def find_newest_events(
    pipeline_id: str,
    flows: Collection[str],
    *,
    is_relevant: Callable[[FlowEvent], bool] = lambda _: True,
    since: Mapping[str, datetime] = _NO_LIMIT,
) -> Mapping[str, FlowEvent]:
    """Return the newest event of each flow that has one, by the flow's name.

    Args:
        pipeline_id: The pipeline's id.
        flows: Names of the flows, with or without catalog and schema. Paging stops when each has an event.
        is_relevant: A filter of the events.
        since: The earliest time of a flow's events, by its name in ``flows``. Paging stops there.

    Raises:
        SessionError: No login is configured, or the workspace doesn't answer.
        TableferryError: The pipeline is missing, or its events may not be read.
    """
    newest: dict[str, FlowEvent] = {}
    missing = set(flows)
    for event in filter(None, map(parse_event, fetch_events(pipeline_id))):
        missing -= {name for name in missing & since.keys() if event.timestamp < since[name]}
        if is_relevant(event):
            named = {name for name in missing if event.is_for_flow(name)}
            newest |= dict.fromkeys(named, event)
            missing -= named
        if not missing:
            break
    return newest


def fetch_events(pipeline_id: str) -> Iterator[Mapping[str, Any]]:
    """Yield a pipeline's ``flow_progress`` events, newest first, as the API returns them.

    Raises:
        SessionError: No login is configured, or the workspace doesn't answer.
        TableferryError: The pipeline is missing, or its events may not be read.
    """
    query = {"filter": _FILTER, "order_by": "timestamp desc"}
    while query:
        page = _fetch_page(pipeline_id, query)
        yield from page.get("events", ())
        # A request with a page token accepts no filter and no order.
        token = page.get("next_page_token")
        query = {"page_token": token} if token else {}


def _fetch_page(pipeline_id: str, query: Mapping[str, str]) -> Mapping[str, Any]:
    path = f"/api/2.0/pipelines/{quote(pipeline_id, safe='')}/events"
    with workspace.request(f"the events of pipeline {pipeline_id} can't be read") as client:
        page = client.api_client.do("GET", path, query={**query, "max_results": _PAGE_SIZE})
    assert isinstance(page, dict)
    return page


def parse_event(event: Mapping[str, Any]) -> FlowEvent | None:
    """Parse an event; return None if it doesn't report a flow's status."""
    origin, progress = event.get("origin") or {}, (event.get("details") or {}).get("flow_progress") or {}
    flow, status = origin.get("flow_name"), progress.get("status")
    if event.get("event_type") != "flow_progress" or not flow or not status:
        return None
    metrics = progress.get("metrics") or {}
    rows = [int(metrics[name]) for name in _ROW_METRICS if metrics.get(name) is not None]
    return FlowEvent(
        flow,
        status,
        datetime.fromisoformat(event["timestamp"]),
        sum(rows) if rows else None,
    )

"""Pipelines of the fake workspace: their definitions, and the event log that a test writes for them."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.workspace.http import RefusedRequest, Request, not_found, route

_PIPELINES = "/api/2.0/pipelines"
_TYPES = re.compile(r"event_type in \(([^)]*)\)")


class Pipelines:
    """Pipelines by id.

    Attributes:
        pipelines: The definition of each pipeline.
        events: Each pipeline's events, oldest first; a pipeline with events needn't have a definition.
        page: The maximum number of events per page, for any requested number.
        first_event: The time of the first event of each pipeline; an event follows in each second.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pipelines: dict[str, dict[str, Any]] = {}
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.page = 1000
        self.first_event = datetime(2026, 1, 1, tzinfo=UTC)

    def flow_progress(
        self, pipeline_id: str, flow: str, status: str, *, update: str = "u1", **metrics: int
    ) -> None:
        """Write into a pipeline's event log that a flow got somewhere."""
        written = self.events.setdefault(pipeline_id, [])
        at = self.first_event + timedelta(seconds=len(written))
        details: dict[str, Any] = {"status": status, **({"metrics": metrics} if metrics else {})}
        written.append(
            {
                "id": f"event-{len(written)}",
                "event_type": "flow_progress",
                "level": "INFO",
                "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "origin": {"pipeline_id": pipeline_id, "flow_name": flow, "update_id": update},
                "message": f"Flow '{flow}' is {status}.",
                "details": {"flow_progress": details},
            }
        )

    @route("GET", f"{_PIPELINES}/{{id}}/events")
    def list_events(self, request: Request) -> dict[str, Any]:
        if request.names["id"] not in self.events.keys() | self.pipelines.keys():
            raise not_found(f"The specified pipeline {request.names['id']} was not found.")
        query = dict(request.query)
        size = min(self.page, int(query.pop("max_results", 25)))
        token = query.pop("page_token", None)
        if token is not None and query:
            raise RefusedRequest(400, "INVALID_PARAMETER_VALUE", f"page_token excludes {sorted(query)}")
        first, types = token.split(":", 1) if token else ("0", query.get("filter", ""))
        if query.get("order_by", "timestamp desc") != "timestamp desc":
            raise RefusedRequest(400, "INVALID_PARAMETER_VALUE", "only timestamp desc is known here")
        events = self.events.get(request.names["id"], [])[::-1]
        if types:
            known = _TYPES.fullmatch(types)
            if not known:
                raise RefusedRequest(400, "INVALID_PARAMETER_VALUE", f"filter {types} isn't known here")
            events = [event for event in events if f"'{event['event_type']}'" in known[1]]
        start = int(first)
        more = {"next_page_token": f"{start + size}:{types}"} if start + size < len(events) else {}
        return {"events": events[start : start + size], **more}

    @route("POST", _PIPELINES)
    def create_pipeline(self, request: Request) -> dict[str, str]:
        identity = str(uuid.uuid4())
        self._put(identity, request.json)
        return {"pipeline_id": identity}

    @route("PUT", f"{_PIPELINES}/{{id}}")
    def edit_pipeline(self, request: Request) -> dict[str, Any]:
        self.get_pipeline(request)
        self._put(request.names["id"], request.json)
        return {}

    @route("GET", f"{_PIPELINES}/{{id}}")
    def get_pipeline(self, request: Request) -> dict[str, Any]:
        if request.names["id"] not in self.pipelines:
            raise RefusedRequest(
                404, "RESOURCE_DOES_NOT_EXIST", f"The specified pipeline {request.names['id']} was not found."
            )
        return self.pipelines[request.names["id"]]

    @route("DELETE", f"{_PIPELINES}/{{id}}")
    def delete_pipeline(self, request: Request) -> dict[str, Any]:
        self.get_pipeline(request)
        del self.pipelines[request.names["id"]]
        return {}

    def _put(self, identity: str, given: dict[str, Any]) -> None:
        spec = {key: value for key, value in given.items() if key not in ("run_as", "dry_run", "parameters")}
        settings: dict[str, Any] = {key: given[key] for key in ("run_as", "parameters") if key in given}
        self.pipelines[identity] = {
            "pipeline_id": identity,
            "name": given["name"],
            "state": "IDLE",
            "creator_user_name": "someone@example.com",
            "run_as_user_name": "someone@example.com",
            "spec": {**spec, "id": identity},
            **settings,
        }

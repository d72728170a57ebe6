"""The revisions of the queue's tables, each frozen as it was."""

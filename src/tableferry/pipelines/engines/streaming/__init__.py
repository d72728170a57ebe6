"""The streaming engine: Structured Streaming, in this process."""

"""The iteration of a run as a trace for Perfetto and chrome://tracing."""

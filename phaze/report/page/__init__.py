"""The report as one HTML file: its frame, style and behaviour."""

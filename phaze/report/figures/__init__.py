"""The sections of the report, one module each: what it shows as HTML, with a table behind every picture."""

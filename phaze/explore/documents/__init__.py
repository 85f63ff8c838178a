"""The documents that answers are recorded in: typed records, their schemas, and what every result says about itself."""

"""The documents that answers are told in: typed records, their schemas, and what every result says about itself."""

"""The `dse` command, one short module per verb."""

"""The pages that `--help` shows: like a manual, plain text in 80 columns, of nothing heavy."""

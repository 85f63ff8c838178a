"""Two designs for the stages of one pipeline, proven: which designs may matter, and which pair of them is best."""

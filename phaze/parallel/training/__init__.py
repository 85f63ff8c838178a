"""One iteration under a plan: from plan and framework to its time, memory and energy."""

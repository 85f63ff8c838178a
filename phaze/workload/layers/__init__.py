"""From an operator graph to layers made of work: cuts, branches, fusion, and layers that are built once."""

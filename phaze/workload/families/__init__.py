"""Model families: dimensions in, forward operator graph out."""

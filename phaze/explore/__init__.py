"""Search over the design space: requests, evaluation, frontiers, certificates, strategies, documents and answers."""

"""The chip for a service: architectures and plans to serve a model in one certified search."""

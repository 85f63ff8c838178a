"""Who does the work of a search: this process, worker processes on this machine, or a Dask cluster."""

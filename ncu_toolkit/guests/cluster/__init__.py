"""The GPUs of a Dask cluster."""

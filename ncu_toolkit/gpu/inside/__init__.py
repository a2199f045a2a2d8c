"""What runs inside a program that is probed: Python imports `sitecustomize` of this folder at its
start, because `probe` puts the folder on PYTHONPATH."""

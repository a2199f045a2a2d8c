"""What runs inside a program that is recorded: the driver loads `recorder.c`, and Python imports
`start/sitecustomize.py`, whose folder is on PYTHONPATH, and that `python.py`."""

"""The second product: a program or its trace, to an answer; may use `kernel`."""

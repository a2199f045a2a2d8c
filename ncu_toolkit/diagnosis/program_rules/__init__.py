"""What costs a program's step time, one module a cause."""

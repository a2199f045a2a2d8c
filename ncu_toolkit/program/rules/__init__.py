"""What costs a program's step time, one module a cause, discovered like those of a kernel
(`diagnosis.rules.step_rules`). A module's docstring is its reference page, with the same headings,
and `find` decides whether a step shows it. What rules share is in modules with a leading underscore."""

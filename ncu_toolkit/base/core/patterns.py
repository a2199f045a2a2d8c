"""Regular expressions that users write: checked when given, and matched within a time limit.

Imported by the rule inside Nsight Compute, so it needs no compiled module."""

import re
import warnings
from typing import Final

from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.base.core.safe import visible

#: For one name, which takes microseconds unless it is made not to.
SECONDS: Final = 2.0


def compiled(text: str, option: str) -> re.Pattern[str]:
    """The expression that `option` was given; UsageProblem where it is none."""
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageProblem(
            f"{option} '{visible(text, 200)}' is not a regular expression: {error}",
            "Quote special characters with a backslash",
        ) from None


def found(text: str, name: str, option: str) -> bool:
    """Whether the expression of `option` is found in a name; UsageProblem if that takes too
    long."""
    from ncu_toolkit.base.core import workers

    expression = compiled(text, option)
    late = UsageProblem(
        f"{option} '{visible(text, 200)}' takes more than {SECONDS:g} s for one name",
        "Write it without repeats inside repeats, such as (a+)+",
    )
    with workers.time_limit(SECONDS, late):
        return expression.search(name) is not None

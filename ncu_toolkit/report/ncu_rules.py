"""What Nsight Compute's own rules say in a report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, Literal

from ncu_toolkit.model import RuleMessage

#: Identifiers of rules that come with this package (sections/NcuToolkitRule.py).
OWN_RULES: Final = "NcuToolkit"
#: A link as the GUI follows it: @section:id:words@ and its like, but @url:words:address@.
_LINK = re.compile(r"@(section|url|source|metric|sourcecounter):([^@:]*)(?::([^@]*))?@")
_RULE_KINDS: dict[int, Literal["ok", "optimization", "warning", "error", "none"]] = {
    0: "none",
    1: "ok",
    2: "optimization",
    3: "warning",
    4: "error",
}
_SCOPES = {0: "", 1: "local", 2: "global"}


def messages_of(action: Any) -> Iterable[RuleMessage]:
    """Nsight Compute's own messages; none where rules are being applied. What our rule in sections/
    posted is not read back."""
    results = action.rule_results_as_dicts() if hasattr(action, "rule_results_as_dicts") else ()
    for entry in results:
        if str(entry.get("rule_identifier", "")).startswith(OWN_RULES):
            continue
        message = entry.get("rule_message") or {}
        estimate = entry.get("speedup_estimation") or {}
        speedup = estimate.get("speedup")
        yield RuleMessage(
            rule=str(entry.get("rule_identifier", "")),
            title=str(message.get("title", "")),
            text=_LINK.sub(_words, str(message.get("message", ""))),
            kind=_RULE_KINDS.get(int(message.get("type", 0)), "none"),
            speedup=float(speedup) if speedup is not None else None,
            scope=_SCOPES.get(int(estimate.get("type", 0)), ""),
        )


def _words(link: re.Match[str]) -> str:
    """What a link shows: addresses stand behind their words, everything else before them."""
    kind, first, rest = link.groups()
    return str(first if kind == "url" else rest or first)

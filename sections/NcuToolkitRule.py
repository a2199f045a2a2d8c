"""ncu-toolkit's verdict inside Nsight Compute: the bottleneck, its predicted gain and what to
change, on the details page and in ncu's output.

An adapter: the diagnosis is that of `ncu-toolkit analyze`. It needs Python 3.11 and this file in
its place, in a checkout or an installation of ncu-toolkit. Whatever goes wrong becomes one line of
output; a rule that raises would clutter every profile."""

import os
import sys

import NvRules

#: Findings beside the first that are shown, and the part of the time from which one is worth
#: showing.
RUNNERS_UP = 2
WORTH = 0.03


def get_identifier():
    return "NcuToolkitVerdict"


def get_name():
    return "ncu-toolkit: Verdict"


def get_description():
    return "What limits this kernel, how much faster it would be without, and what to change."


def get_section_identifier():
    return "NcuToolkitTime"


def apply(handle):
    try:
        context = NvRules.get_context(handle)
        frontend = context.frontend()
        action = context.range_by_idx(0).action_by_idx(0)
    except Exception:  # without a frontend there is nobody to tell
        return
    try:
        _post(frontend, action)
    except Exception as error:
        _tell(
            frontend,
            NvRules.MsgType.WARNING,
            f"No verdict from ncu-toolkit: {type(error).__name__}: {error}",
            "ncu-toolkit",
        )


def _post(frontend, action):
    home = _home()
    if home and home not in sys.path:
        sys.path.insert(0, home)
    from ncu_toolkit.kernel.diagnosis.engine import diagnose
    from ncu_toolkit.kernel.diagnosis.rules import title
    from ncu_toolkit.kernel.explain.verdict import card
    from ncu_toolkit.kernel.report.ncu_action import profile_from_action

    try:
        profile = profile_from_action(action)
    except (
        Exception
    ) as error:  # its instructions are the part that most depends on the profiler's version
        profile = profile_from_action(action, instructions=False)
        _tell(
            frontend,
            NvRules.MsgType.WARNING,
            f"Judged without its instructions: {type(error).__name__}: {error}",
            "ncu-toolkit",
        )
    diagnosis = diagnose(profile)
    shown_card = card(profile, diagnosis)
    first = diagnosis.primary
    shown = [
        first,
        *(finding for finding in diagnosis.runners_up if finding.saved >= WORTH and not first.good),
    ][: 1 + RUNNERS_UP]
    for rank, finding in enumerate(shown):
        gains = finding.saved > 0 and not finding.good
        kind = (
            NvRules.MsgType.OPTIMIZATION
            if gains or finding.speedup is None
            else NvRules.MsgType.OK
            if finding.good
            else NvRules.MsgType.NONE
        )
        if rank == 0:
            heading, words = shown_card.title, _words(shown_card)
        else:
            heading, words = f"{title(finding.bottleneck)} (runner-up)", finding.summary
        message = _tell(frontend, kind, words, heading)
        if message is None:
            continue
        if gains:
            frontend.speedup(message, NvRules.IFrontend.SpeedupType_GLOBAL, finding.saved * 100)
        if rank == 0:
            _focus(frontend, message, finding, action)


def _focus(frontend, message, finding, action):
    """Name the collected metrics that the finding's figures come from."""
    from ncu_toolkit.base.metrics import registry
    from ncu_toolkit.kernel.diagnosis import figures

    there = frozenset(action.metric_names())
    for evidence in finding.evidence:
        try:
            inputs = figures.inputs(evidence.metric)
        except KeyError:  # a figure of the launch's shape, not a metric
            continue
        for entry in (registry.REGISTRY[name] for name in inputs if name in registry.REGISTRY):
            name = next((name for name in entry.ncu if name in there), None)
            value = action.metric_by_name(name).value() if name is not None else None
            if isinstance(value, int | float):
                frontend.focus_metric(
                    message,
                    name,
                    float(value),
                    NvRules.IFrontend.Severity_SEVERITY_DEFAULT,
                    _plain(evidence.meaning),
                )


def _words(card):
    """The card in one paragraph: the gain, why, where, and what to do."""
    parts = [
        f"{card.gain[:1].upper()}{card.gain[1:]} ({card.sureness}).",
        card.summary,
    ]
    parts.extend(
        f"{line.place or line.sass}: {line.share:.0%} of {line.of}." for line in card.where
    )
    parts.extend(card.do)
    parts.append(card.missing)
    return " ".join(part for part in parts if part)


def _tell(frontend, kind, text, name):
    """The message's id, or None where the frontend took none."""
    try:
        return frontend.message(kind, _plain(text), name)
    except Exception:
        return None


def _plain(text):
    """One line without the characters that the frontend reads as links."""
    return " ".join(text.replace("@", "").split())


def _home():
    """The folder that holds the package: beside this file's folder in a checkout, above it in an
    installation; empty where neither."""
    folder = os.path.dirname(os.path.abspath(__file__))
    for candidate in (os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))):
        if os.path.isfile(os.path.join(candidate, "ncu_toolkit", "__init__.py")):
            return candidate
    return ""

"""What is private in a text: paths, addresses, e-mails, credentials, names of machines and users,
each replaced by as many neutral bytes.

A pattern is a guess: fields that can only hold something private go as a whole (scrub.py)."""

import contextlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

#: Names that are no secret.
COMMON: Final = frozenset(
    {"root", "localhost", "linux", "windows", "ubuntu", "user", "users", "home", "127.0.0.1"}
)
LOOPBACK: Final = ("127.0.0.1", "::1", "0.0.0.0")

_SEPARATOR: Final = r"(?:[/\\]+|%2[Ff]|%5[Cc])"
#: One word of a folder's name: any letter of any script; brackets only in pairs, and what separates
#: paths only where the same path goes on (`/data/user=x/y`, `/data/[x]/y`, `/data/it's/y`).
_WORD: Final = (
    r"(?:[^\s/\\:*?\"'`<>|,;(){}\[\]=\x00-\x1f\x7f]|\([^()\s/\\]*\)"
    r"|(?:[,=\[]|\](?=[\w./\\-])|[\"'](?=\w))(?=[\w.,='\"\[\]%+-]{0,100}[/\\]))+"
)
#: A folder's name may hold spaces before a separator; a word with a dash in front is an option.
_FOLDER: Final = rf"{_WORD}(?:[ ](?![-/\\]){_WORD}){{0,5}}{_SEPARATOR}"
_LAST: Final = rf"(?:{_WORD}(?:[ ](?![-/\\]){_WORD}){{0,3}}?\.\w{{1,5}}\b|{_WORD})?"
#: What may precede an absolute path: the start, a space, a quote, punctuation, an option's
#: letters (`-I/scratch`). A letter before it otherwise makes it a fraction or a relative path.
_BEFORE: Final = r"(?:(?<![\w.%+~\\/)\]-])|(?<=[\s\"'(]--)|(?<![\w-])--?[A-Za-z][\w-]*?|\bfile:)"
_PATHS: Final = re.compile(
    rf"""
    (?<=")(?:--?[A-Za-z]\w*)?(?:/(?![\s*])|~|[A-Za-z]:[\\/]|\\\\)[^"\n\0]+(?=")         # all of a quoted path
    | (?<=')(?:--?[A-Za-z]\w*)?(?:/(?![\s*])|~|[A-Za-z]:[\\/]|\\\\)[^'\n\0]+(?=')
    | {_BEFORE} (?P<posix> (?<!:)// {_FOLDER} (?:{_FOLDER})* {_LAST}  # //host/share
        | (?:(?<=file:)/{{0,2}})? \\?/ (?:{_FOLDER})+ {_LAST} )
    | {_BEFORE} (?P<drive> (?:[\\/]{{2,4}}[?.][\\/]{{1,2}})?[A-Za-z](?::|%3[Aa]){_SEPARATOR} (?:{_FOLDER})* {_LAST}
        | \\\\[^\s\\]+ {_SEPARATOR} (?:{_FOLDER})* {_LAST}
        | (?:~[\w.-]*|\$\{{?[A-Za-z_]\w*\}}?|%[A-Za-z_]\w*%)[/\\] (?:{_FOLDER})* {_LAST} )
    """,
    re.VERBOSE,
)
#: Percent-escaped paths, with their separators.
_ESCAPED: Final = re.compile(
    r"(?<![^\s\"'<>=\0])[^\s\"'<>=\0%]*(?:%(?!2[Ff]|5[Cc])[^\s\"'<>=\0%]*)*%(?:2[Ff]|5[Cc])[^\s\"'<>\0]*"
)
#: A path of one component looks like a quotient in code; in text it does not.
_ONE: Final = re.compile(
    rf"{_BEFORE}(?<!:)/(?P<one>(?=[^\W\d_]|[._]\w|\d\w){_WORD})(?=$|[\s\"'`,;:)>\0]|\.(?:\s|$))"
)
_HOME: Final = re.compile(
    r"/(?:home|users|Users)/[^\s/\\:\"'\0]+|/root(?=/)|(?<=[A-Za-z]:)[\\/]+Users[\\/]+[^/\\:\"'\0\n]+"
)
#: A home folder's name of several words, at the end of a text or of a phrase.
_HOME_END: Final = re.compile(
    rf"[/\\](?:home|users|Users)[/\\]+{_WORD}(?:[ ](?!-){_WORD}){{1,2}}(?=$|[\"'`,;:)>\n\0])"
)
_HOME_ALONE: Final = re.compile(r"(?:/(?:home|users|Users)|[A-Za-z]:[\\/]+Users)[\\/]+[^/\\]+")
_SPLIT: Final = re.compile(r"([/\\])")
_USER: Final = re.compile(
    r"(?:/(?:home|users|Users)/|[A-Za-z]:[\\/]+Users[\\/]+)([^/\\:\"'\0\n]+)(?=[/\\])"
)
_IPV4: Final = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)")
_IPV6: Final = re.compile(r"(?<![\w:.])[\w:]{4,80}(?:%\w+)?(?!\w)")
_MAC: Final = re.compile(
    r"(?<![\w:-])(?:[0-9A-Fa-f]{2}([:-]))(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?![\w:-])"
    r"|(?<![\w.])(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}(?![\w.])"
)
_UUID: Final = re.compile(
    r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f])"
)
_ONE_COLON: Final = re.compile(r"(?<!:):(?!:)")
#: A host that is called after its address, as in EC2.
_HOST_BY_ADDRESS: Final = re.compile(r"(?<![\w-])ip(?:-\d{1,3}){4}(?![\w-])")
#: Hosts by their domain, in code only by those of the world; then those of Kubernetes (its names of
#: pods have no vowels: apimachinery's rand.SafeEncodeString), lists of nodes as Slurm writes them, and
#: what variables of these and of torchrun hold.
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = re.compile(
    rf"(?<![\w.@-])(?:{_LABEL}\.){{2,}}(?:com|org|net|edu|gov|mil)(?![\w-]|\.\w)"
)
_PUBLIC: Final = re.compile(
    r"(?i)(?:^|\.)(?:nvidia|github|githubusercontent|google|microsoft|stackoverflow|wikipedia|apache|gnu|llvm|python|pytorch|tensorflow"
    r"|boost|opensource|khronos|ietf|w3|arxiv|acm|ieee|readthedocs|mozilla|unicode|kernel|creativecommons|cplusplus|cppreference)\.(?:com|org|net)$"
)
_IN_HOUSE: Final = re.compile(
    rf"(?<![\w.@-])(?:{_LABEL}\.)+(?:local|localdomain|internal|intranet|lan|corp|svc|pod|example)(?![\w-]|\.\w)"
    rf"|(?<![\w.@-])(?:{_LABEL}\.){{2,}}(?:io|ai|cloud|de|uk|fr|jp|cn|kr|in|it|es|nl|ch|at|se|no|fi|dk|pl|cz|ru|br|au|ca|us|eu|ie|il|tw|sg|hk)(?![\w-]|\.\w)"
    r"|(?<![\w.-])[a-z0-9](?:[a-z0-9-]*[a-z0-9])?-[bcdfghjklmnpqrstvwxz2456789]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}(?![\w-])"
    r"|(?<![\w.-])[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9]\[\d+(?:[-,]\d+)+\](?:[\w-]+)?"
)
_HOST_GIVEN: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:SLURMD?_\w*(?:NODE|HOST|ADDR)\w*|(?:\w+_)?(?:HOSTNAME|NODE_?NAME|NODELIST|POD_(?:NAME|NAMESPACE))|MASTER_ADDR|KUBERNETES_\w*HOST)"
    r"[\"']?\s?[=:]\s?[\"']?([^\s\"'`;&<>)}]+)"
)
#: Characters of every address except an e-mail's.
_DIGITS: Final = re.compile(r"[0-9A-Fa-f][-.:][0-9A-Fa-f:]")
_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]+(?:@|%40)[\w-]+(?:\.[\w-]+)*\.[^\W\d]{2,}")
#: Logins: in a URL, with a password, `user@host:path` of ssh and git, `user@host`; but no version
#: of a symbol (`memcpy@GLIBC_2.14`, `exit@plt`).
_LOGIN: Final = re.compile(
    r"(?<=://)[^\s/@]+@[\w.-]+|(?<![\w.+@:-])[\w.+-]+:[^\s:@\"']+@\w[\w.-]*"
    r"|(?<![\w.+@:-])[A-Za-z_][\w.+-]*@[A-Za-z][\w.-]*:[^\s\"'<>|,;)]+"
    r"|(?<![\w.+@:-])[A-Za-z_][\w.-]*@(?!plt\b|GLIBC|CXXABI|LIB)(?:[A-Za-z][\w.-]*|\d{1,3}(?:\.\d{1,3}){3})"
)
_VALUE: Final = r"[^\s\"'`,;&<>)\]}]"
_REST: Final = r"[^\s\"'`<>|,;)\]}]"
#: Credentials by their known forms, each with texts of which a match holds one: searching a text is
#: many times faster than a pattern. A pattern's group goes, or all of it. Forms: GitHub, GitLab,
#: AWS ("Understanding IAM identifiers"), Slack, Google, Hugging Face, OpenAI and Anthropic, Stripe,
#: npm, PyPI, NVIDIA, DigitalOcean, Weights & Biases, JWT (RFC 7519).
_TOKENS: Final = tuple(
    (hints.split(), re.compile(pattern))
    for hints, pattern in (
        ("ghp_ gho_ ghu_ ghs_ ghr_", r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{16,}"),
        ("github_pat_ glpat-", r"(?<![A-Za-z0-9])(?:github_pat_|glpat-)[\w-]{16,}"),
        ("AKIA ASIA AROA AIDA AGPA ABIA ACCA", r"(?<![A-Za-z0-9])A(?:KIA|SIA|ROA|IDA|GPA|BIA|CCA)[A-Z0-9]{12,}(?![a-z])"),
        ("xox xapp-", r"(?<![A-Za-z0-9])(?:xox[a-z]|xapp)-[\w-]{8,}"),
        ("hooks.slack.com", r"hooks\.slack\.com/" + _REST + "+"),
        ("AIza ya29. GOCSPX-", r"(?<![A-Za-z0-9])(?:AIza[\w-]{30,}|ya29\.[\w-]{16,}|GOCSPX-[\w-]{16,})"),
        ("hf_", r"(?<![A-Za-z0-9_])hf_[A-Za-z0-9]{24,}"),
        ("sk-", r"(?<![A-Za-z0-9_])sk-[\w-]{20,}"),
        ("_live_ _test_", r"(?<![A-Za-z0-9_])[srp]k_(?:live|test)_[A-Za-z0-9]{10,}"),
        ("npm_ nvapi- pypi- dop_v1_ wandb_v1_", r"(?<![A-Za-z0-9_])(?:npm_[A-Za-z0-9]|(?:nvapi-|pypi-|dop_v1_|wandb_v1_)[\w-])[\w-]{24,}"),
        ("eyJ", r"(?<![A-Za-z0-9])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
        ("://", r"(?<![A-Za-z0-9])"
                r"(?:s3[an]?|gc?s|az|wasbs?|abfss?|adl|hdfs|webhdfs|viewfs|dbfs|oss|smb|cifs|nfs|s?ftps?|ssh|scp|rsync|git\+\w+)://" + _REST + "+"),
        ("amazonaws.com googleapis.com core.windows.net",
         r"https?://[^\s\"'`<>|,;)/]*(?:amazonaws\.com|storage\.googleapis\.com|core\.windows\.net)" + _REST + "*"),
        ("arn:aws", r"arn:aws[\w-]*:" + _REST + "+"),
        ("earer asic", r"(?i:authorization\W{1,4}basic|bearer)\s+(?=[A-Za-z._~+/=-]*\d)([\w.~+/=-]{12,})"),
    )
)  # fmt: skip
#: Names of credentials; the first may be a part of a longer name.
_SECRET: Final = (
    r"(?:passw(?:or)?d|passphrase|(?:client|shared|app|aws)[_-]?secret|secret[_-]?(?:access[_-]?)?key|api[_-]?key|access[_-]?key"
    r"|(?:api|auth|access|refresh|bearer|session)[_-]?token|private[_-]?key|account[_-]?key|x-amz-\w{1,20}|(?<=[?&])sig)"
)
_SHORT_SECRET: Final = (
    r"(?i:token|secret|pwd|passw(?:or)?d|passphrase|credentials?|(?:api|access|secret)[_-]?key)"
)
#: A longer name of one; tokens of a model's text are none.
_LONG_SECRET: Final = r"(?:[A-Za-z]\w*?[_-])??" + "".join(
    f"(?<!(?i:{word})[_-])" for word in ["max", "min", "num", "per", "pad", "eos", "bos", "unk", "mask", "sep", "cls", "special", "stop", "new"]
) + _SHORT_SECRET  # fmt: skip
#: The value that a credential's name is given (`API_KEY=…`, `"password": "…"`, `?sig=…`), unless it is
#: code: with a digit or a sign in it, or of an option or a variable of the environment, or in quotes;
#: and any in a text that is not code.
_GIVEN: Final = re.compile(
    rf"(?i){_SECRET}(?:[\w-]{{0,20}}[\"']?\s?[=:]\s?|\s)[\"']?(?=[^\s\"']*[\d+/=!])({_VALUE}{{6,}})"
)
_GIVEN_EXACTLY: Final = re.compile(
    rf"(?<![A-Za-z0-9-]){_LONG_SECRET}[\"']?\s?[=:]\s?(?:\"([^\"\n]{{3,}})\"|'([^'\n]{{3,}})')"
    rf"|(?<![\w-])--?{_LONG_SECRET}(?:=|:\s?|\s+)[\"']?(?![-\"'])({_VALUE}+)"
    rf"|(?<![A-Za-z0-9])(?=[A-Z0-9_]+[=:]){_LONG_SECRET}(?:_[A-Z0-9]+)?(?:=|:\s?)(?!=)[\"']?({_VALUE}{{3,}})"
)
_GIVEN_IN_TEXT: Final = re.compile(
    rf"(?<![A-Za-z0-9-]){_LONG_SECRET}[\"']?\s?(?:=(?!=)|:(?!:))\s?[\"']?(?!\w*\()({_VALUE}{{3,}})"
)
_GIVEN_HINTS: Final = (
    "pass", "pwd", "secret", "api_key", "api-key", "apikey", "access", "token", "private", "account", "x-amz", "sig=", "credential",
)  # fmt: skip
#: A private key in PEM, to its end or that of the text (RFC 7468).
_KEY_BLOCK: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY.*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)", re.DOTALL)  # fmt: skip
#: A folder's name that `Rules` itself has given, or that is one letter, which says nothing.
_NEUTRAL: Final = re.compile(r"x+\d{0,3}|[ -~]")
_EXTENSION: Final = re.compile(r"\.\w{1,12}$")


def neutral(text: str) -> str:
    """Neutral text of the same length; separators stay so that a path stays a path."""
    return _masked(text, "/.\\:")


def blank(text: str) -> str:
    """A whole text replaced; spaces stay, so that a long line can still be wrapped."""
    return _masked(text, " ")


def empty(text: str) -> str:
    """Source code replaced by spaces; lines stay, so that line numbers still mean something."""
    return _masked(text, "\r\n", " ")


def _masked(text: str, kept: str, sign: str = "x") -> str:
    """Text with all but the characters of `kept` replaced, byte for byte."""
    return "".join(
        char if char in kept else sign * len(char.encode("utf-8", "surrogateescape"))
        for char in text
    )


def user_of(path: str) -> str:
    """The user whose home folder a path lies in; empty where it lies in none."""
    found = _USER.search(path)
    return found.group(1) if found else ""


@dataclass(frozen=True)
class Rules:
    """What to replace in a text.

    `words` as whole words in any case, `names` anywhere, `folders` as they are written. `twins`:
    neutral names of folders that would otherwise be called alike. Without `paths` only home folders
    go; with `bases` file names go too."""

    words: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    twins: Mapping[str, str] = field(default_factory=dict)
    paths: bool = True
    bases: bool = False
    files: tuple[str, ...] = ()

    @cached_property
    def _words(self) -> re.Pattern[str] | None:
        return _any_of(self.words, _whole_word, re.IGNORECASE)

    @cached_property
    def _names(self) -> re.Pattern[str] | None:
        return _any_of(self.names, re.escape)

    @cached_property
    def _folders(self) -> re.Pattern[str] | None:
        return _any_of(self.folders, lambda name: re.escape(name) + r"(?![\w-])")

    @cached_property
    def _files(self) -> re.Pattern[str] | None:
        return _any_of(self.files, lambda name: rf"(?<![\w.-]){re.escape(name)}(?![\w-])")

    def component(self, name: str) -> str:
        """The neutral name of one folder."""
        return name if _NEUTRAL.fullmatch(name) else self.twins.get(name, neutral(name))

    def base(self, name: str) -> str:
        """The neutral name of a file: its extension stays."""
        if _NEUTRAL.fullmatch(name.partition(".")[0]):
            return name
        found = _EXTENSION.search(name)
        stem = name[: found.start()] if found else name
        return self.twins.get(name, neutral(stem) + name[len(stem) :])

    def path(self, path: str) -> str:
        """A text that is a file's path: folders go, and the file's name only with `bases`."""
        if not self.paths:
            return self.text(path)
        at = max(path.rfind("/"), path.rfind("\\")) + 1
        start, last = self._all_folders(path[:at]), path[at:]
        if _HOME_ALONE.fullmatch(path):
            return start + self.component(last)
        return start + (self.base(last) if self.bases else self._named(last))

    def folder(self, path: str) -> str:
        """A whole text that is the path of a folder."""
        if not self.paths:
            return self.text(path)
        return self.path(path + "/")[:-1]

    def names_only(self, text: str) -> str:
        """A text that stays: only names that somebody asked for go."""
        return _replaced(self._names, text)

    def label(self, text: str) -> str:
        """A text that no user writes (a label, a metric's value): paths and addresses go."""
        return self.names_only(self._lines(text))

    def text(self, text: str) -> str:
        """A text that a user or a program may have written."""
        return self._named(self._lines(text))

    def code(self, text: str) -> str:
        """Source code: a slash divides there."""
        return self._named(self._lines(text, one=False))

    def _lines(self, text: str, one: bool = True) -> str:
        """Most lines hold nothing private, and only credentials span lines. `one`: a path may have
        one component."""
        plain = _credentials(text, code=not one)
        lines = plain.splitlines(keepends=True) if "\n" in plain else [plain]
        return "".join(
            _hosts(_addresses(self._without_paths(line, one=one)), code=not one) for line in lines
        )

    def _named(self, text: str) -> str:
        return self.names_only(_replaced(self._files, _replaced(self._words, text), self.base))

    def _without_paths(self, text: str, *, one: bool) -> str:
        if "/" not in text and "\\" not in text and "%" not in text:
            return text
        if not self.paths:
            return _replaced(_HOME, text)
        text = _replaced(_HOME_END, text)
        text = _replaced(self._folders, text, self._all_folders)
        if "%" in text:
            text = _replaced(_ESCAPED, text)
        text = _PATHS.sub(self._found_path, text)
        if one:
            text = _ONE.sub(self._found_path, text)
        return _replaced(_HOME, text)

    def _all_folders(self, path: str) -> str:
        parts = enumerate(_SPLIT.split(path))
        return "".join(part if i % 2 else self.component(part) for i, part in parts)

    def _found_path(self, found: re.Match[str]) -> str:
        path = next((group for group in found.groups() if group is not None), found.group())
        at = max(path.rfind("/"), path.rfind("\\")) + 1
        last = path[at:]
        before = found.group()[: len(found.group()) - len(path)]
        if found.lastgroup == "one":
            return before + neutral(path)
        plain = "." in last.strip(".") and " " not in last and "%" not in last
        last = (self.base(last) if self.bases else last) if plain else self.component(last)
        return before + self._all_folders(path[:at]) + last


def _any_of(
    names: Iterable[str], pattern: Callable[[str], str], flags: int = 0
) -> re.Pattern[str] | None:
    """A pattern of any of the names, the longest first; None without any."""
    longest = sorted(filter(None, names), key=lambda name: (-len(name), name))
    return re.compile("|".join(map(pattern, longest)), flags) if longest else None


def _whole_word(word: str) -> str:
    """A word ends at letters and digits, and at an underscore unless it is all letters, which are
    part of many identifiers."""
    edge = "[^\\W_]" if re.search(r"[\d.-]", word) else r"\w"
    return rf"(?<!{edge}){re.escape(word)}(?!{edge})"


def _replaced(
    pattern: re.Pattern[str] | None, text: str, change: Callable[[str], str] = neutral
) -> str:
    return text if pattern is None else pattern.sub(lambda found: change(found.group()), text)


def _credentials(text: str, *, code: bool) -> str:
    """The text without tokens, keys and addresses of storage; its lines stay."""
    if "PRIVATE KEY" in text:
        text = _KEY_BLOCK.sub(lambda found: _masked(found.group(), "\r\n"), text)
    for hints, pattern in _TOKENS:
        if any(hint in text for hint in hints):
            text = pattern.sub(_group_masked, text)
    lower = text.lower()
    if any(hint in lower for hint in _GIVEN_HINTS):
        for given in (_GIVEN, _GIVEN_EXACTLY, *([] if code else [_GIVEN_IN_TEXT])):
            text = given.sub(_group_masked, text)
    return text


def _group_masked(found: re.Match[str]) -> str:
    """What was found with its group neutral, or all of it where there is no group."""
    if not found.re.groups:
        return neutral(found.group())
    start, end = (place - found.start() for place in found.span(found.lastindex or 0))
    whole = found.group()
    return whole[:start] + neutral(whole[start:end]) + whole[end:]


def _hosts(text: str, *, code: bool) -> str:
    """The text without names of hosts that are known by their form."""
    text = _HOST_GIVEN.sub(_group_masked, text)
    if "." in text:
        text = _DOMAIN.sub(
            lambda found: found[0] if _PUBLIC.search(found[0]) else neutral(found[0]), text
        )
    if code or not ("." in text or "-" in text or "[" in text):
        return text
    return _IN_HOUSE.sub(
        lambda found: found[0] if _member(found[0]) else _masked(found[0], "-.,[]"), text
    )


def _member(host: str) -> bool:
    """Whether it may be a member of a structure: two words of letters alone (`a.local`)."""
    return host.count(".") == 1 and not re.search(r"[\d-]", host)


def _addresses(text: str) -> str:
    if "@" in text or "%40" in text:
        for pattern in (_LOGIN, _EMAIL):
            text = _replaced(pattern, text)
    if not _DIGITS.search(text):
        return text
    for pattern in (_MAC, _UUID, _HOST_BY_ADDRESS):
        text = _replaced(pattern, text)
    text = _IPV4.sub(lambda found: neutral(found[0]) if _is_ipv4(found) else found[0], text)
    return _IPV6.sub(lambda found: _without_ipv6(found[0]), text) if ":" in text else text


def _is_ipv4(found: re.Match[str]) -> bool:
    """Versions look like addresses: ncu's own is followed by ' (build', others are above 255."""
    text = found[0]
    if text in LOOPBACK or found.string.startswith(" (build", found.end()):
        return False
    return all(int(part) <= 255 for part in text.split("."))


def _without_ipv6(text: str) -> str:
    """Without an address, which a label may precede (`inet6:`), and a colon behind it. One
    of letters alone may be C++ (`a::b`)."""
    for start in (0, *(found.end() for found in _ONE_COLON.finditer(text))):
        address = text[start:].removesuffix(":")
        with contextlib.suppress(ValueError):
            ipaddress.IPv6Address(address.split("%")[0])
            if address in LOOPBACK or not any(char.isdigit() for char in address):
                return text
            return text[:start] + neutral(address) + text[start + len(address) :]
    return text

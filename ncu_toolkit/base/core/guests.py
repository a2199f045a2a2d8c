"""Guests: what the products do without. Each is a folder in `ncu_toolkit/guests` that can be deleted,
so nothing imports one: what uses a guest asks for it here, and goes on without."""

import importlib
import pkgutil
from typing import Any, Final

from ncu_toolkit import PACKAGE

_FOLDER: Final = PACKAGE / "guests"


def there(name: str) -> bool:
    """Whether a guest is installed."""
    return (_FOLDER / name / "__init__.py").is_file()


def guest(module: str) -> Any:
    """A module of a guest, such as `tune.view`; None where the guest is not installed."""
    name = module.partition(".")[0]
    return importlib.import_module(f"ncu_toolkit.guests.{module}") if there(name) else None


def known(*names: str) -> tuple[str, ...]:
    """Those of some guests that are installed."""
    return tuple(name for name in names if there(name))


def commands() -> dict[str, tuple[str, str, str]]:
    """Commands of the guests: where each is, its line of help, and its group there, as the `COMMANDS`
    and `GROUP` of their packages say."""
    found = {}
    for each in pkgutil.iter_modules([str(_FOLDER)]):
        package = importlib.import_module(f"ncu_toolkit.guests.{each.name}")
        group = getattr(package, "GROUP", "Project")
        for name, text in getattr(package, "COMMANDS", {}).items():
            found[name] = (f"{package.__name__}.command", text, group)
    return found

"""What stands for a launcher whose claims are said beside it: by the arguments of `bitverdict.test`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from bitverdict.harness.model.addresses import load, load_afresh

Requires = Callable[..., bool]


class NamedLauncher:
    """Calls `function`, or what lies at `address`, which is imported when it is first called: in a worker.

    `claims` and `requires` are read as the attributes of a launcher are (`bitverdict.harness.model.launcher_limits`); None leaves
    them to `function`.
    """

    def __init__(
        self, address: str, function: Callable[..., object] | None, claims: Sequence[str] | None, requires: Requires | None
    ) -> None:
        self.address, self.function = address, function
        self.__name__ = address.rpartition(":")[2] if address else getattr(function, "__name__", "launcher")
        self.claims = claims if claims is not None else getattr(function, "claims", None)
        self.requires = requires if requires is not None else getattr(function, "requires", None)

    def __call__(self, *operands: Any, **configuration: Any) -> Any:
        return self._resolve_function(*operands, **configuration)

    @property
    def _resolve_function(self) -> Callable[..., Any]:
        return self.function if self.function is not None else load(self.address)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._resolve_function)

    def fresh_launcher(self) -> Callable[..., Any]:
        """The launcher of a module that is imported anew; itself where it has no address."""
        return load_afresh(self.address) if self.address else self

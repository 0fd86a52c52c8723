"""Which protections this machine has for a process that is not trusted, and what gives it those that it lacks."""

from __future__ import annotations

import functools
import shutil
import subprocess
from dataclasses import dataclass

from bitverdict.harness.model.extras import pip_line
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.sealed.jail import confine

NAMESPACES = ("user namespace", "mount namespace", "network namespace", "process namespace", "IPC namespace", "UTS namespace")
ALWAYS = ("no new privileges", "no capabilities", "resource limits", "clean environment", "bounded log")
BUBBLEWRAP, SECCOMP, LANDLOCK, SIGNALS = "bubblewrap", "seccomp", "landlock", "landlock's scopes"
_TRIED_WITHIN = 10.0  # seconds
_TRIAL_ARGUMENTS = (
    "--unshare-all --unshare-user --new-session --cap-drop ALL --ro-bind / / --proc /proc --dev /dev --size 4096 --tmpfs /tmp "
    "--remount-ro /dev --remount-ro / true"
).split()
"""What a jail asks of bubblewrap, each once: a kernel may make namespaces, and refuse to mount in them."""


@dataclass(frozen=True)
class Protections:
    """`names` are those of protections that this machine has; `remedies` maps the name of one that it lacks to what gives it."""

    names: tuple[str, ...]
    remedies: dict[str, str]

    def has(self, name: str) -> bool:
        return name in self.names

    def sentence(self, of: str = "sealed") -> str:
        """What a run prints."""
        lacking = ", ".join(f"{name} ({remedy})" for name, remedy in self.remedies.items())
        return f"{of}: {', '.join(self.names)}" + (f"; lacking: {lacking}" if lacking else "; nothing is lacking")


@functools.cache
def protections() -> Protections:
    """Those of this machine, tried once in a process: a namespace is had by making one."""
    names, remedies = [], {}
    why_not = bubblewrap_fails()
    if why_not:
        remedies[BUBBLEWRAP] = why_not
    else:
        names += [BUBBLEWRAP, *NAMESPACES]
    if confine.pyseccomp is None:
        remedies[SECCOMP] = f"{pip_line('sealed')} (pyseccomp), and Debian's package libseccomp2"
    elif not confine.kernel_filters():
        remedies[SECCOMP] = "the kernel has no CONFIG_SECCOMP_FILTER"
    else:
        names.append(SECCOMP)
    version = confine.landlockpy.abi_version() if confine.landlockpy else 0
    if not confine.landlockpy:
        remedies[LANDLOCK] = f"{pip_line('sealed')} (landlockpy)"
    elif not version:
        remedies[LANDLOCK] = "needs a kernel of Linux 5.13 or later that has landlock in its list lsm="
    else:
        names.append(LANDLOCK)
    if version >= 6:
        names.append(SIGNALS)
    elif LANDLOCK not in remedies:
        remedies[SIGNALS] = "needs Linux 6.12 or later; seccomp refuses the same signals and sockets"
    return Protections((*names, *ALWAYS), remedies)


def require(found: Protections) -> None:
    """For ``--require-jail``: UsageError where a protection is lacking that nothing else replaces."""
    missing = {name: remedy for name, remedy in found.remedies.items() if name != SIGNALS or not found.has(SECCOMP)}
    if missing:
        told = "; ".join(f"{name}: {remedy}" for name, remedy in missing.items())
        raise UsageError(
            f"--require-jail: this machine lacks {', '.join(missing)}. A sealed run that requires its jail needs all protections. "
            f"{told}. Or leave out --require-jail: the run then says what is lacking"
        )


def bubblewrap_fails() -> str:
    """Empty where bubblewrap makes its namespaces here, else what to do."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "install Debian's package bubblewrap"
    try:
        trial = subprocess.run(
            [bwrap, *_TRIAL_ARGUMENTS], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TRIED_WITHIN
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{bwrap} did not run: {error}"
    if trial.returncode == 0:
        return ""
    said = trial.stderr.strip().splitlines()[-1:] or [f"exit status {trial.returncode}"]
    return f"{said[0]}; {_why_no_namespace()}"


def _why_no_namespace() -> str:
    """The setting of the kernel that refuses a user namespace, where it is one that can be read."""
    for path, refuses, remedy in (
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=1000"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
    ):
        try:
            with open(path) as setting:
                if setting.read().strip() == refuses:
                    return f"allow user namespaces: {remedy}"
        except OSError:
            continue
    return "allow user namespaces: a container needs a seccomp profile that lets clone make them, and an unmasked /proc"

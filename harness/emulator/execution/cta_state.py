"""What the units of one program (CTA) share: the launch, the agent that runs, what the program has done, and its timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, prod
from time import process_time
from typing import TYPE_CHECKING

from bitverdict.harness.emulator.advice import Note
from bitverdict.harness.emulator.device_probe import ChipEvent
from bitverdict.harness.emulator.execution.cluster_order import ClusterOrder
from bitverdict.harness.emulator.execution.real_launch import RealLaunch
from bitverdict.harness.emulator.faults import EmulatedFault, TooLarge
from bitverdict.harness.emulator.memory.global_memory import GlobalMemory
from bitverdict.harness.emulator.memory.real_access import RealAccess
from bitverdict.harness.emulator.numerics.enclosures import Enclosures
from bitverdict.harness.emulator.timeline import Timeline

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.async_ops import InFlight, Schedule
    from bitverdict.harness.emulator.execution.partitions import Agent, Footprints
    from bitverdict.harness.emulator.frontend.hints import FalseHint
    from bitverdict.harness.emulator.memory.onchip import View
    from bitverdict.harness.emulator.memory.real_shadows import ShadowWords
    from bitverdict.harness.emulator.mlir_reader import Operation


@dataclass(eq=False, kw_only=True)
class LaunchContext:
    """What all programs of one launch have in common, the counts of what they did included."""

    memory: GlobalMemory
    grid: tuple[int, int, int]
    schedule: Schedule
    shared: int
    """Bytes of shared memory of each program."""
    tensor: int
    """Columns of tensor memory of each program; it has none where this is 0."""
    ctas: int = 1
    """CTAs of a cluster, which is one program; shared and tensor memory are those of each."""
    runs: list[int]
    """How often each block of the code ran."""
    step_limit: int
    """Operations of one program."""
    seconds_limit: float = 0
    """Processor seconds of this process, after which the launch is too large; 0: it may take any."""
    begun_count: int = 0
    """Programs that have begun."""
    fence_lines: frozenset[str] = frozenset()
    """Lines where the author wrote a proxy fence."""
    end: str = ""
    """The line where a program ends."""
    is_compiled: bool = False
    """The kernel is written in Triton: what happens on the chip is the compiler's doing."""
    allow_duplicate_rows: bool = False
    """The caller does not care which of two rows scattered to one place stays."""
    prints_once: bool = False
    """Each element once, not by each thread that holds it."""
    cancel: Callable[[], int | None] = lambda: None
    """Takes a program that has not begun out of the launch: its number, None where there is none."""
    false_hints: dict[tuple[int | str, str], FalseHint] = field(default_factory=dict)
    """(line of the program's text or name of an argument, what was promised) -> what is not so."""
    displaced_loads: dict[str, EmulatedFault] = field(default_factory=dict)
    """Line of a load that took elements from elsewhere, by false hints -> the failure where one of them reaches something."""
    enclosures: Enclosures = field(default_factory=Enclosures)
    """Values of which the compiled program leaves a choice open."""
    reals: RealLaunch = field(default_factory=RealLaunch)
    """Where floats carry real values, what the launch has of them."""
    real_access: RealAccess | None = None
    """Real values on their way between registers and memory; None where floats carry none."""
    move_hooks: tuple[Callable[[ChipEvent], None], ...] = ()
    """What is told of each event on the chip (`DeviceProbe.on_move`)."""

    def __post_init__(self) -> None:
        self.deadline = process_time() + self.seconds_limit if self.seconds_limit else inf

    def check_time(self) -> None:
        """EmulatedFault where the launch has taken its seconds."""
        if self.seconds_limit and process_time() > self.deadline:
            begun = f"{self.begun_count:,} of {prod(self.grid):,} programs had begun"
            raise TooLarge(f"{begun} after {self.seconds_limit:g} s of processor time")

    def take_reals(self, op: Operation, shape: tuple[int, ...]) -> ShadowWords | None:
        """The real values of what `op` writes now, in `shape`; None where it is exact."""
        return None if self.real_access is None else self.real_access.take(op, shape)

    @property
    def notes(self) -> set[Note]:
        """What is not wrong but rests on something."""
        return self.memory.order.notes


class CtaState:
    """Program `number` of `launch` while it runs. `agent` is the partition whose turn it is. `acts` counts what the program has
    done that another agent or program can notice. `operations` are its own; `steps` go on over the programs of the launch.
    `footprints` are there while it is specialised."""

    agent: Agent

    def __init__(self, launch: LaunchContext) -> None:
        self.launch, self.schedule, self.notes = launch, launch.schedule, launch.notes
        self.acts = self.steps = self.operations = 0
        self.together = False  # programs of the launch run turn by turn
        self.footprints: dict[str, Footprints] = {}
        self.cluster = ClusterOrder(self)

    def start(self, number: int, agent: Agent) -> None:
        """Become program `number` of the grid, which `agent` runs alone."""
        x, y, _ = self.launch.grid
        self.number, self.program = number, (number % x, number // x % y, number // (x * y))
        self.timeline = Timeline()
        self.operations = 0
        self.footprints = {}
        self.cluster.reset()
        self.admit(agent)
        self.agent = agent

    def admit(self, agent: Agent) -> None:
        """`agent` is one of this program from here on."""
        agent.place = self.program
        self.launch.memory.order.admit(agent, self.number)

    def meet(self) -> None:
        """bar.sync: all threads of the running agent meet."""
        self.launch.memory.order.meet(self.agent)

    def touch(self, op: Operation, view: View, *, write: bool, keep: bool) -> None:
        """The running agent accesses `view`: held against other partitions, and remembered for them where `keep`."""
        if self.footprints:
            self.footprints[view.space.name].touch(self.agent, op, view, write=write, keep=keep)

    # -- the timeline -------------------------------------------------------------------------------------------------
    def tell(self, what: str, op: Operation, said: str) -> None:
        """What the running agent did."""
        self.timeline.add(self.steps, self.agent.name, what, op.location, said)

    def note_issue(self, flight: InFlight) -> None:
        flight.number = self.steps
        touched = [f"reads {view}" for view in flight.reads] + [f"writes {view}" for view in flight.writes]
        self.tell(flight.kind.name, flight.op, f"issued: {', '.join(touched)}" if touched else "issued")
        self._tell_flight("issued", flight, self.agent.name)

    def note_landing(self, flight: InFlight) -> None:
        said = f"landed, issued at step {flight.number}"
        self.timeline.add(self.steps, "the hardware", flight.kind.name, flight.op.location, said)
        self._tell_flight("landed", flight, "the hardware")

    def note_wait(self, flight: InFlight, agent: Agent) -> None:
        """`agent` has waited for `flight`."""
        self._tell_flight("known", flight, agent.name)

    def _tell_flight(self, kind: str, flight: InFlight, agent: str) -> None:
        for tell in self.launch.move_hooks:
            tell(ChipEvent(self, kind, flight.op, agent, flight.reads, flight.writes, flight))

    def tell_access(self, kind: str, op: Operation, view: View, *, writes: bool) -> None:
        """Probes are told of an ordinary access to the chip's memory, or of one that collides ("fault")."""
        for tell in self.launch.move_hooks:
            tell(ChipEvent(self, kind, op, self.agent.name, () if writes else (view,), (view,) if writes else ()))

    def tell_barrier(self, kind: str, op: Operation, byte: int, phase: int, note: str = "") -> None:
        """Probes are told of the mbarrier at `byte`, of which `phase` phases are complete."""
        for tell in self.launch.move_hooks:
            tell(ChipEvent(self, kind, op, self.agent.name, barrier=byte, phase=phase, note=note))

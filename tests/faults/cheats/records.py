"""Every cheat of the tests: its file, whose pattern it follows, and what a sealed run must make of it.

A cheat returns what the wrong kernel of its file computes, or what no kernel computed, and makes a judge believe otherwise.
`matmuls.wrong_matmul` and `kernelbench_candidates.Wrong` are the same wrong kernels without a cheat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

FAILS, HOST, ERROR, REFUSED, NOTHING = "fail", "inconclusive", "error", "usage error", "nothing ran"
_FILLS, _PLANTS, _PROCESSES = (
    "fill the machine's disk or memory",
    "leave files where programs of others look",
    "reach all processes of the machine",
)
DECIDED = (FAILS, HOST, ERROR, REFUSED, NOTHING)
"""How a run may end that does not believe a cheat."""
MATMUL, DESCRIBED, PROBLEM = "matmul", "described", "kernelbench"

SOURCES = {
    "pygpubench 7": "https://github.com/gpu-mode/pygpubench/pull/7",
    "pygpubench 23": "https://github.com/gpu-mode/pygpubench/issues/23",
    "pygpubench exploits": "https://github.com/gpu-mode/pygpubench/tree/main/exploits",
    "reference-kernels 102": "https://github.com/gpu-mode/reference-kernels/pull/102",
    "reference-kernels 104": "https://github.com/gpu-mode/reference-kernels/pull/104",
    "reference-kernels 162": "https://github.com/gpu-mode/reference-kernels/issues/162",
    "kernelbot 501": "https://github.com/gpu-mode/kernelbot/pull/501",
    "tensara 238": "https://github.com/tensara/tensara/pull/238",
    "KernelBench 82": "https://github.com/ScalingIntelligence/KernelBench/pull/82",
    "KernelBench checker": "https://github.com/ScalingIntelligence/KernelBench/blob/main/src/kernelbench/kernel_static_checker.py",
    "KernelGuard": "https://github.com/SinatrasC/kernelguard",
    "Makora": "https://makora.com/blog/reward-hacks",
    "wafer.ai": "https://www.wafer.ai/blog/reward-hacks-field-guide",
    "wafer.ai 104x": "https://www.wafer.ai/blog/reward-hacking",
    "Sakana": "https://agentpostmortem.com/case/apm-0007",
    "robust-kbench": "https://arxiv.org/abs/2509.14279",
    "TritonRL": "https://arxiv.org/abs/2510.17891",
    "METR": "https://www.greaterwrong.com/posts/Zu4ai9GFpwezyfB2K/metr-recent-frontier-models-are-reward-hacking",
    "Berkeley": "https://github.com/benchflow-ai/awesome-evals/pull/41",
    "own": "",
}
"""Where a pattern is told in public. "own": none of these lists has it; it attacks what this project does and others do not."""


@dataclass(frozen=True, kw_only=True)
class Cheat:
    """One cheat: the function `name` of the file of its `family`. No two share `id`."""

    family: str
    name: str
    sources: tuple[str, ...]
    ends: tuple[str, ...]
    """How a sealed run may end, of `DECIDED`."""
    why: str
    """What shows it."""
    task: str = MATMUL
    """`MATMUL`: `run matmul --launcher`; `DESCRIBED`: a test by `bv.judged`; `PROBLEM`: `bitverdict kernelbench`."""
    target: str = "emulated:sm_90"
    harm: str = ""
    """What it would do to the machine without a seal, where it is run with one alone; empty: it may be run without."""
    seconds: int = 0
    """The timeout of a case; 0: the ordinary one."""
    learns: bool = False
    """Whether it is run twice, and told the operands of the first run."""
    says: tuple[str, ...] = ()
    """What a sealed case's outcome and message say of it, one of these; empty: what `SAID` has for it."""
    secret: str = ""
    """That both runs draw by: one that it could know."""

    @property
    def id(self) -> str:
        more = [self.task] * (self.task == DESCRIBED) + ["its secret known"] * bool(self.secret)
        return f"{self.family}: {self.name}" + (f" ({', '.join(more)})" if more else "")


NO_STORE, KERNEL_TOOK_IT = "no kernel's store wrote the words", "the kernel that wrote the words took what no kernel computed"
WRONG, REACHED_NOTHING = "the words are wrong", "the words are wrong, and what judges them lies in another process"
FAULT, FORGETS = "faults are kept where the program is executed", "a repeated call gets other operands, or the same ones elsewhere"


def _of(family: str, ends: tuple[str, ...], why: str, **cheats: tuple[str, ...]) -> tuple[Cheat, ...]:
    return tuple(Cheat(family=family, name=name, sources=sources, ends=ends, why=why) for name, sources in cheats.items())


_WRAP = ("KernelBench checker", "TritonRL", "Makora", "wafer.ai")

TORCH_BESIDE = _of(
    "torch_beside_kernels",
    (HOST, FAILS),
    NO_STORE,
    before_launch=_WRAP,
    after_launch=_WRAP,
    in_thread=("KernelBench checker", "wafer.ai"),
    on_side_stream=("KernelBench checker", "KernelBench 82", "wafer.ai"),
    as_part_of_a_linear_layer=("TritonRL", "KernelBench checker"),
    by_backward=("own",),
    in_function_mode=("own",),
    in_dispatch_mode=("own",),
    in_custom_op=("own",),
    scripted=("KernelGuard",),
    as_fallback=("KernelGuard", "KernelBench checker"),
    other_half=("TritonRL", "Makora"),
    rows_but_one=("Makora",),
    by_numpy=("own",),
    by_blas=("own",),
    by_python=("own",),
    by_subprocess=("own",),
    read_back_by_elements=("own",),
)
LAUNDERED = _of(
    "laundered",
    (HOST, FAILS),
    KERNEL_TOOK_IT,
    copied_by_kernel=("Makora", "TritonRL"),
    plus_nothing=("own",),
    doubled_half=("own",),
    as_integers=("own",),
    as_arguments=("own",),
    host_tensor_uploaded=("own",),
    sorted_table=("own",),
    by_indices=("own",),
) + tuple(
    Cheat(family="laundered", name=name, sources=("own",), ends=(HOST, FAILS), why=KERNEL_TOOK_IT, task=DESCRIBED)
    for name in ("as_constants", "as_integer_arguments", "by_offsets")
)
REMEMBERED = (
    *_of(
        "remembered",
        (FAILS, HOST),
        FORGETS,
        by_pointer=("KernelGuard", "kernelbot 501"),
        by_pointer_copied=("KernelGuard", "tensara 238"),
        by_shape=("KernelGuard", "reference-kernels 104"),
        by_contents=("KernelGuard",),
        by_version=("reference-kernels 102", "reference-kernels 104"),
        last_call=("KernelGuard",),
        one_buffer=("KernelGuard", "wafer.ai"),
        replayed_graph=("KernelGuard",),
        in_shared_memory=("reference-kernels 162",),
    ),
)
MEMORY_FOUND = _of(
    "memory_found",
    (FAILS, HOST),
    WRONG,
    never_written=("KernelBench 82", "Sakana", "wafer.ai 104x"),
    freed_result=("KernelBench 82", "Sakana"),
    earlier_output=("wafer.ai",),
    view_of_operand=("KernelGuard", "wafer.ai"),
    beside_operands=("pygpubench exploits",),
    storage_beyond_view=("pygpubench exploits",),
    expected_found_by_gc=("pygpubench 7",),
)
LAZY = _of(
    "lazy_results",
    (FAILS, HOST, ERROR),
    "what the launcher returned is what is compared, and no word may change after",
    subclass=("reference-kernels 162", "KernelBench checker", "wafer.ai"),
    own_methods=("reference-kernels 162", "KernelGuard"),
    late_thread=("wafer.ai", "KernelGuard"),
    late_kernel=("wafer.ai",),
    at_finalisation=("own",),
    at_deletion=("pygpubench exploits",),
    in_signal_handler=("pygpubench exploits",),
    when_traced=("KernelGuard",),
)
PATCHED = _of(
    "patched_judge",
    (FAILS,),
    REACHED_NOTHING,
    torch_comparisons=("KernelGuard",),
    numpy_comparisons=("KernelGuard",),
    comparison=("KernelGuard", "METR"),
    decision=("KernelGuard", "METR"),
    code_of_comparison=("KernelGuard", "pygpubench exploits"),
    verdict_class=("METR",),
    names_of_outcomes=("METR",),
    contract=("METR",),
    operands_of_judge=("KernelGuard", "KernelBench 82"),
    expected_by_frames=("METR", "KernelGuard"),
    system_modules=("KernelGuard",),
    built_in_functions=("KernelGuard",),
    garbage_hook=("pygpubench 7",),
    json_module=("KernelGuard",),
    pickler=("pygpubench exploits",),
    trace_function=("KernelGuard",),
    import_hook=("KernelGuard",),
    signal_handler=("pygpubench exploits",),
    search_for_verdicts=("pygpubench 23",),
    deletion_hook=("own",),
    poison_and_bands=("own",),
)
_ENDED = (FAILS, ERROR)
PROCESSES = (
    *_of(
        "processes",
        _ENDED,
        "a frame of the candidate's says what it returned, never what is decided",
        verdict_into_pipes=("pygpubench exploits", "pygpubench 23"),
        verdict_by_connections=("pygpubench exploits",),
        frames_into_sockets=("pygpubench exploits",),
        verdict_on_standard_output=("KernelGuard",),
        forked_answer=("own",),
        exit_status_0=("pygpubench exploits",),
        system_exit=("Berkeley",),
        interrupt=("own",),
        killed_parent=("own",),
        interrupted_run=("own",),
        operands_in_other_memory=("pygpubench exploits",),
        answer_over_network=("Berkeley",),
    ),
    *(
        Cheat(
            family="processes", name=name, sources=sources, ends=_ENDED, why="the judge is not the candidate's parent", seconds=12
        )
        for name, sources in (("stopped_parent", ("own",)), ("traced_parent", ("pygpubench exploits",)))
    ),
)
FILES = (
    *_of(
        "files_changed",
        (FAILS,),
        "what the judge reads cannot be written, and what it leaves cannot be reached",
        journal=("pygpubench exploits",),
        module_of_comparison=("METR",),
        module_of_reference=("METR",),
        test_file=("METR", "Berkeley"),
        translated_programs=("own",),
        compiler_cache=("own",),
        compiled_modules=("pygpubench exploits",),
        environment=("KernelGuard",),
    ),
    Cheat(
        family="files_changed", name="site_packages", sources=("KernelGuard",), ends=(FAILS,), why="no file there can be written",
        harm=_PLANTS,
    ),
)  # fmt: skip
SEEN_THROUGH = _of(
    "seen_through",
    (FAILS, HOST),
    "whatever it finds out, no kernel's store wrote the words",
    memory_under_the_tensor=("own",),
    memory_by_pointer=("own",),
    first_calls_only=("pygpubench 7", "wafer.ai"),
    every_other_call=("KernelGuard",),
    known_by_poison=("own",),
    known_by_bands=("own",),
    known_by_stack=("METR", "KernelGuard"),
    known_by_device=("own",),
    known_by_time=("pygpubench 7",),
)
CAUGHT = _of(
    "caught_faults",
    (FAILS,),
    FAULT,
    out_of_bounds=("wafer.ai 104x",),
    out_of_bounds_in_thread=("own",),
    race=("own",),
    device_assertion=("own",),
)
FORGED = _of(
    "forged_launches",
    (FAILS, HOST),
    "launches are recorded where they are executed",
    recorded_launch=("own",),
    own_device=("own",),
    own_launcher_class=("own",),
    own_driver=("own",),
    own_jit_function=("TritonRL", "Makora"),
    launch_hook=("own",),
    unlaunched_kernel=("Makora", "TritonRL"),
    program_with_python=("own",),
)
CLAIMED = (
    *_of(
        "claimed_little",
        (HOST, REFUSED, FAILS, ERROR, NOTHING),
        "what `requires` leaves out is counted, and a refusal of a legal case fails",
        nothing_left=("own",),
        trivial_cases_left=("robust-kbench", "KernelGuard"),
        one_case_left=("robust-kbench",),
        hard_cases_refused=("own",),
        missing_feature_claimed=("own",),
        harness_blamed=("own",),
        fault_with_own_outcome=("own",),
        not_run_claimed=("own",),
        machine_blamed=("own",),
        memory_blamed=("own",),
    ),
    *(
        Cheat(
            family="claimed_little", name=name, sources=("own",), ends=(HOST, FAILS, ERROR), task=DESCRIBED,
            why="what a candidate says of the target or the machine is not believed",
        )
        for name in ("hard_cases_refused", "missing_feature_claimed", "not_run_claimed", "harness_blamed")
    ),
)  # fmt: skip
MISLEADING = _of(
    "misleading_tensors",
    (FAILS, HOST),
    WRONG,
    zeros=("robust-kbench", "Sakana"),
    mean=("robust-kbench",),
    not_a_number=("pygpubench 7",),
    inputs_zeroed=("KernelBench 82",),
    one_row_expanded=("Makora",),
    overlapping_rows=("own",),
    other_dtype=("own",),
    wider_dtype=("own",),
    tensor_of_the_cpu=("own",),
    no_storage=("own",),
    agreeing_class=("METR",),
    fp16_sums=("KernelBench checker", "wafer.ai", "KernelGuard"),
)
GUESSED = _of(
    "guessed_operands",
    (FAILS, HOST),
    "operands come from a secret that is drawn for the run",
    table_of_answers=("KernelGuard", "METR"),
    drawn_again=("METR",),
) + (
    Cheat(
        family="guessed_operands", name="taught", sources=("KernelGuard", "METR"), ends=(FAILS,), learns=True,
        why="operands come from a secret that is drawn for the run, and nothing else shows it",
    ),
)  # fmt: skip
RESOURCES = tuple(
    Cheat(
        family="resources", name=name, sources=sources, ends=(FAILS, ERROR, HOST), why="what it takes is bounded; it alone ends",
        harm=harm, seconds=seconds,
    )
    for name, sources, harm, seconds in (
        ("endless_loop", ("own",), "", 6),
        ("stopped", ("own",), "", 6),
        ("signals_ignored", ("own",), "", 6),
        ("memory", ("own",), _FILLS, 40),
        ("forks", ("own",), _FILLS, 0),
        ("disk", ("own",), _FILLS, 0),
        ("output", ("own",), _FILLS, 60),
        ("large_exception", ("own",), "", 8),
        ("deep_exception", ("own",), "", 0),
        ("segmentation_fault", ("own",), "", 0),
        ("recursion", ("own",), "", 8),
        ("launches_without_end", ("own",), "", 6),
        ("device_memory", ("own",), _FILLS, 40),
    )
)  # fmt: skip
AS_MODEL = tuple(
    Cheat(family="kernelbench_candidates", name=name, sources=sources, ends=ends, why=why, task=PROBLEM)
    for name, sources, ends, why in (
        ("TorchBeside", ("KernelBench checker", "Makora"), (HOST,), NO_STORE),
        ("LayerBeside", ("KernelBench checker", "Makora"), (HOST,), NO_STORE),
        ("TorchCopied", ("Makora",), (HOST,), KERNEL_TOOK_IT),
        ("Constant", ("robust-kbench", "Sakana"), (FAILS,), WRONG),
        ("InputZeroed", ("KernelBench 82",), (FAILS,), "an input that changed fails"),
        ("NeverWritten", ("KernelBench 82", "Sakana"), (FAILS,), WRONG),
        ("ByShape", ("KernelGuard", "reference-kernels 104"), (FAILS, HOST), FORGETS),
        ("ProblemsModel", ("Makora", "METR"), (FAILS, HOST), "the problem's file is in no process of the candidate's"),
        ("Hooked", ("own",), (HOST, FAILS), NO_STORE),
        ("EasyShapesOnly", ("robust-kbench", "KernelGuard"), (FAILS,), "other sizes than the problem's are asked"),
        ("OwnSizesOnly", ("robust-kbench",), (HOST, REFUSED, FAILS), "what `requires` leaves out is counted"),
    )
)

DTYPE_VIEWS = _of(
    "dtype_views",
    (HOST, FAILS),
    KERNEL_TOOK_IT,
    result_of_bytes=("own",),
    result_of_long_integers=("own",),
    result_of_wider_floats=("own",),
    source_of_bytes=("own",),
    source_of_complex_numbers=("own",),
    imaginary_part=("own",),
    both_of_bytes=("own",),
    pointers_cast_in_the_kernel=("own",),
    words_doubled_as_bits=("own",),
    doubled_out_of_bytes=("own",),
)
UNDECLARED_WRITES = _of(
    "undeclared_writes",
    (HOST, FAILS),
    NO_STORE,
    running_mean=("own",),
    running_mean_of_half_words=("own",),
    running_mean_by_function=("own",),
    running_mean_of_instances=("own",),
    running_mean_of_a_module=("own",),
    running_variance=("own",),
    by_out=("own",),
    by_list_of_tensors=("own",),
)
HOST_STEERED = tuple(
    Cheat(
        family="host_steered",
        name=name,
        sources=("own",),
        ends=(HOST, FAILS),
        task=DESCRIBED,
        why="the host chose what the kernels store",
    )
    for name in (
        "slices_joined",
        "slices_stacked",
        "slices_copied_into_their_places",
        "integers_and_a_load",
        "four_integers_a_launch",
        "number_of_programs",
        "sides_of_the_grid",
        "distance_of_pointers",
        "order_of_launches",
        "table_and_integers",
        "table_and_places",
        "constants_and_a_load",
    )
)
UNREPEATABLE = _of(
    "unrepeatable",
    (HOST, FAILS),
    "what cannot be repeated on other words is not cleared",
    address_by_a_word=("own",),
    address_by_a_word_of_torchs=("own",),
    stored_by_a_word=("own",),
    asserted_word=("own",),
    loop_by_a_word=("own",),
    address_by_a_sum=("own",),
)
PLANTED_NAMES = _of(
    "planted_names",
    (FAILS,),
    "no process that judges looks where a candidate writes",
    beside_itself=("own",),
    in_the_current_folder=("own",),
    in_the_temporary_folder=("own",),
    as_packages=("own",),
    site_customised=("own",),
    path_file=("own",),
    pytest_settings=("own",),
    compiled_beside_the_source=("own",),
    search_path=("own",),
    in_the_names_of_started_programs=("own",),
)
AROUND_THE_JAIL = _of(
    "around_the_jail",
    (FAILS, HOST),
    "the jail has no other process, and no handle of one",
    memory_of_others=("own",),
    environment_of_others=("own",),
    processes_traced=("own",),
    memory_read_across=("own",),
    descriptors_of_others=("own",),
    own_descriptors=("own",),
    signals_to_all=("own",),
    sockets_by_name=("own",),
    shared_memory=("own",),
    libraries_before_others=("own",),
    told_by_time=("own",),
    forked_after_the_end=("own",),
    links_in_scratch=("own",),
    limits_raised=("own",),
)

HARMS = {
    "in_the_current_folder": _PLANTS, "in_the_temporary_folder": _PLANTS, "site_customised": _PLANTS, "path_file": _PLANTS,
    "compiled_beside_the_source": _PLANTS, "links_in_scratch": _PLANTS, "memory_of_others": _PROCESSES,
    "processes_traced": _PROCESSES, "descriptors_of_others": _PROCESSES, "signals_to_all": _PROCESSES, "shared_memory": _PROCESSES,
    "limits_raised": _PROCESSES,
}  # fmt: skip
HELD_TO_WORDS = tuple(
    replace(cheat, says=("computed on the host", "wrong mathematics"), harm=HARMS.get(cheat.name, ""))
    for cheat in (*DTYPE_VIEWS, *UNDECLARED_WRITES, *HOST_STEERED, *UNREPEATABLE, *PLANTED_NAMES, *AROUND_THE_JAIL)
)

BELIEVED = "pass"
TWINS = (
    *(
        Cheat(family=family, name=name, sources=(), ends=ends, why="the twin of the cheats", task=task)
        for family, task, wrong, right in (
            ("matmuls", MATMUL, "wrong_matmul", "right_matmul"),
            ("kernelbench_candidates", PROBLEM, "Wrong", "Right"),
        )
        for name, ends in ((wrong, (FAILS,)), (right, (BELIEVED,)))
    ),
    Cheat(
        family="guessed_operands", name="taught", sources=(), ends=(BELIEVED,), learns=True, secret="5" * 64,
        why="with a secret that is known it passes",
    ),
)  # fmt: skip
"""The same wrong kernels without a cheat, which must fail, right ones, which must pass, and a cheat that knows the secret."""

_BY_HOST, _WRONG_WORDS, _BOUND = ("computed on the host",), ("wrong mathematics",), ("outside the bound", "wrong mathematics")
_MEMORY, _NO_LAUNCH, _TIME = ("memory returned before",), ("no Triton kernel was launched",), ("no verdict within",)
_STALE, _LATER = ("result does not change with the operands",), ("in a later call alone",)
_FRAME, _LEFT, _SHAPE = ("must begin with b'BVF1'",), ("the candidate's process left by exit",), ("wrong shape or dtype",)
_NO_PROCESS = ("Function not implemented", "it has started a process")
_ALONE, _LACKS, _CHANGED = (" alone; accept it by --accept-claims",), ("lacks",), ("input changed",)
SAID: dict[str, tuple[str, ...]] = {
    "torch_beside_kernels": _BY_HOST,
    "torch_beside_kernels: by_subprocess": _NO_PROCESS,
    "torch_beside_kernels: by_blas": (*_BY_HOST, *_WRONG_WORDS),
    "torch_beside_kernels: by_python": (*_BY_HOST, "-inf + inf in fsum"),
    "laundered": (*_BY_HOST, *_WRONG_WORDS),
    "remembered": _MEMORY,
    "remembered: by_pointer_copied": _STALE,
    "remembered: by_shape": _STALE,
    "remembered: replayed_graph": _STALE,
    "remembered: in_shared_memory": _BY_HOST,
    "memory_found": _WRONG_WORDS,
    "memory_found: earlier_output": (*_MEMORY, *_WRONG_WORDS),
    "memory_found: beside_operands": ("stray read",),
    "lazy_results: subclass": ("what cannot be handed over",),
    "lazy_results: own_methods": _WRONG_WORDS,
    "lazy_results: late_kernel": (*_WRONG_WORDS, "words changed after the return"),
    "lazy_results: late_thread": (*_WRONG_WORDS, "words changed after the return", "the launcher went on"),
    "lazy_results: at_finalisation": (*_WRONG_WORDS, "words changed after the return", "the launcher went on"),
    "lazy_results: at_deletion": (
        *_BY_HOST,
        *_WRONG_WORDS,
        "words changed after the return",
    ),  # when the collector comes is its affair
    "lazy_results: when_traced": _BY_HOST,
    "lazy_results: in_signal_handler": (*_LEFT, "the launcher went on"),
    "patched_judge": _WRONG_WORDS,
    "patched_judge: contract": _BOUND,
    "processes": _WRONG_WORDS,
    "processes: verdict_into_pipes": _FRAME,
    "processes: frames_into_sockets": _FRAME,
    "processes: verdict_by_connections": _LEFT,
    "processes: exit_status_0": _LEFT,
    "processes: forked_answer": _NO_PROCESS,
    "processes: system_exit": ("SystemExit: 0",),
    "processes: interrupt": ("KeyboardInterrupt",),
    "files_changed": _WRONG_WORDS,
    "seen_through": _BY_HOST,
    "seen_through: memory_by_pointer": ("died of SIGSEGV",),
    "seen_through: first_calls_only": (*_LATER, *_WRONG_WORDS),
    "seen_through: every_other_call": (*_LATER, *_WRONG_WORDS),
    "caught_faults": ("illegal address",),
    "caught_faults: race": ("lanes of one store write different values",),
    "caught_faults: device_assertion": ("device assert",),
    "forged_launches": _BY_HOST,
    "forged_launches: recorded_launch": _NO_LAUNCH,
    "forged_launches: own_driver": _NO_LAUNCH,
    "forged_launches: unlaunched_kernel": _NO_LAUNCH,
    "forged_launches: launch_hook": _WRONG_WORDS,
    "forged_launches: program_with_python": _WRONG_WORDS,
    "claimed_little: nothing_left": ("its requires takes no case", "no case has a field"),
    "claimed_little: trivial_cases_left": _ALONE,
    "claimed_little: one_case_left": _ALONE,
    "claimed_little: hard_cases_refused": ("is not supported; K must be 1",),
    "claimed_little: missing_feature_claimed": _LACKS,
    "claimed_little: harness_blamed": ("Operand.__init__() takes 1 positional argument",),
    "claimed_little: fault_with_own_outcome": ("the candidate's process claims 'pass'",),
    "claimed_little: not_run_claimed": ("the candidate's process claims 'not run'",),
    "claimed_little: machine_blamed": ("in its jail the machine failed",),
    "claimed_little: memory_blamed": ("out of memory on the GPU",),
    "misleading_tensors": _WRONG_WORDS,
    "misleading_tensors: mean": _BOUND,
    "misleading_tensors: inputs_zeroed": _CHANGED,
    "misleading_tensors: other_dtype": _SHAPE,
    "misleading_tensors: wider_dtype": _SHAPE,
    "misleading_tensors: agreeing_class": ("Creating a new Tensor subclass",),
    "misleading_tensors: fp16_sums": ("lost precision",),
    "guessed_operands": _WRONG_WORDS,
    "resources": (*_TIME, *_WRONG_WORDS),
    "resources: memory": (*_TIME, "out of memory on the host"),
    "resources: device_memory": (*_TIME, "out of memory on the host"),
    "resources: deep_exception": _LEFT,
    "resources: segmentation_fault": ("died of SIGSEGV",),
    "kernelbench_candidates": _BY_HOST,
    "kernelbench_candidates: Constant": _WRONG_WORDS,
    "kernelbench_candidates: NeverWritten": _WRONG_WORDS,
    "kernelbench_candidates: EasyShapesOnly": _WRONG_WORDS,
    "kernelbench_candidates: InputZeroed": _CHANGED,
    "kernelbench_candidates: ByShape": _STALE,
    "kernelbench_candidates: ProblemsModel": ("'_OpNamespace' object is not callable",),
    "kernelbench_candidates: OwnSizesOnly": _ALONE,
}
"""What a sealed run says of a cheat: one of these texts, by its family and name or by its family. Another one means that
something else than what the cheat attacks has ended its run, as an error of the harness does."""


def _held(cheat: Cheat) -> Cheat:
    return replace(cheat, says=cheat.says or SAID.get(f"{cheat.family}: {cheat.name}") or SAID.get(cheat.family, ()))


CHEATS: tuple[Cheat, ...] = tuple(map(_held, (
    *TORCH_BESIDE, *LAUNDERED, *REMEMBERED, *MEMORY_FOUND, *LAZY, *PATCHED, *PROCESSES, *FILES, *SEEN_THROUGH, *CAUGHT, *FORGED,
    *CLAIMED, *MISLEADING, *GUESSED, *RESOURCES, *AS_MODEL, *HELD_TO_WORDS,
)))  # fmt: skip

NOT_OURS = (
    ("Times that are forged (patched timers, events, statistics, `synchronize`)", ("reference-kernels 162", "METR", "KernelGuard"),
     "bitverdict gives verdicts and no times"),
    ("Warm-up detected to shorten a measurement", ("pygpubench 7",), "nothing is measured"),
    ("Work batched into one of the timed calls, the others empty", ("reference-kernels 104",),
     "each call is compared; `remembered: last_call` is the part that returns wrong words"),
    ("L2 lines made persistent", ("KernelGuard",), "a measure of time"),
    ("Error counters in GPU memory, zeroed through CUDA's runtime", ("pygpubench 7",),
     "the comparison has no memory on the GPU; of other memory `memory_found: beside_operands` is a part"),
    ("Signatures recovered from the heap or the stack", ("pygpubench 23", "pygpubench exploits"),
     "a candidate's process holds no signature; what it sends is never a verdict"),
    ("Machine code of the harness detoured (GOT, seccomp traps, FILE structures)", ("pygpubench exploits",),
     "native forms of `patched_judge`: the judge is in another process"),
    ("Scores that physics excludes, duplicates of submissions", ("KernelGuard",), "no scores"),
    ("A right program shown to the emulated GPU, another to a real one", ("own",),
     "an emulated run alone cannot see it; a run on a real GPU compares the words of both"),
)  # fmt: skip
"""Patterns of the lists that are no cheats here, with the reason."""
# One file because it is one table: what a sealed run makes of each cheat.

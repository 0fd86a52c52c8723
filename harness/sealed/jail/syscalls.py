"""The system calls that a confined process may make, by name; every other one answers "Function not implemented".

A list of what is allowed also refuses what a later kernel adds. The C library takes that answer for an older kernel and falls back,
as it does for ``clone3``. The names are those of Linux, whichever architecture; a name that an architecture lacks is passed over.

Not in the list, and why it matters: ``ptrace``, ``process_vm_readv`` and its kin (memory of others), ``socket`` and ``connect``
(network), ``unshare``, ``setns`` and ``mount`` (a world of its own), ``bpf``, ``perf_event_open``, ``io_uring_setup``,
``userfaultfd``, ``keyctl`` (large parts of the kernel), ``memfd_create`` and ``shmget`` (memory that no limit counts), ``setsid``
and ``setpgid`` (a process that leaves its group survives the group's end), ``pidfd_getfd`` and ``process_madvise`` (others),
``chmod``, ``chown``, ``utimensat``, ``setxattr``, ``truncate`` (of files that Landlock lets it read, or on a kernel whose Landlock
does not know them), ``openat2`` (its flags lie in memory, which a filter cannot see).
"""

from __future__ import annotations

FILES = """
access chdir close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate fchdir
fdatasync flock fstat fstatfs fsync ftruncate getcwd getdents getdents64 getxattr fgetxattr lgetxattr link linkat listxattr
flistxattr llistxattr lseek lstat mkdir mkdirat newfstatat pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead
readlink readlinkat readv rename renameat renameat2 rmdir sendfile stat statfs statx symlink symlinkat sync_file_range
umask unlink unlinkat write writev
""".split()

MEMORY = """
brk madvise membarrier mincore mlock mmap mprotect mremap msync munlock munmap pkey_alloc pkey_free pkey_mprotect get_mempolicy
mbind set_mempolicy
""".split()

THREADS = """
arch_prctl exit exit_group futex futex_waitv futex_wait futex_wake futex_requeue get_robust_list set_robust_list get_thread_area
set_thread_area gettid restart_syscall rseq sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_get_priority_max sched_get_priority_min sched_yield set_tid_address
""".split()

WAIT_CALLS = """
epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 pause pipe pipe2 poll ppoll pselect6
select signalfd signalfd4 timerfd_create timerfd_gettime timerfd_settime nanosleep clock_nanosleep
""".split()

SIGNALS = """
rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait sigaltstack alarm getitimer setitimer
timer_create timer_delete timer_getoverrun timer_gettime timer_settime
""".split()
"""Without those that send one: `TO_ITSELF` has them."""

ITSELF = """
capget clock_getres clock_gettime getcpu getegid geteuid getgid getgroups getpgid getpgrp getpid getppid getpriority getrandom
getresgid getresuid getrlimit getrusage getsid gettimeofday getuid setrlimit sysinfo time times uname
wait4 waitid
""".split()

CHANNEL = """
getsockname getpeername getsockopt setsockopt recvfrom recvmsg recvmmsg sendmsg sendmmsg sendto shutdown
""".split()
"""On sockets that it was given."""

ALWAYS = (*FILES, *MEMORY, *THREADS, *WAIT_CALLS, *SIGNALS, *ITSELF, *CHANNEL)

OF_A_PROCESS = ("execve", "execveat", "fork", "vfork")
"""What a process needs that starts others: the compilers of the host, on a real GPU."""

WORD = 0xFFFFFFFF  # of an argument that the kernel takes as an int: what stands above it must not hide it
_NEW_NAMESPACES = 0x7E020000 | 0x80  # CLONE_NEW*: cgroup, uts, ipc, user, pid, net, mount, time
_THREAD, _TRUNCATE_FLAG, _MODE = 0x10000, 0o1000, 3  # CLONE_THREAD, O_TRUNC, O_ACCMODE

WHERE = (
    ("clone", (0, _THREAD | _NEW_NAMESPACES, _THREAD)),
    *(("prctl", (0, WORD, option)) for option in (2, 3, 15, 16, 21, 23, 29, 30, 38, 39, 41, 42, 0x53564D41)),
    *(("ioctl", (1, WORD, request)) for request in (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),
    *(("fcntl", (1, WORD, command)) for command in (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1031, 1032)),
    *(("socketpair", (0, WORD, 1), (1, 15, kind)) for kind in (1, 5)),
    ("prlimit64", (0, WORD, 0)),
    ("sched_setaffinity", (0, WORD, 0)),
    *((name, (at, _TRUNCATE_FLAG, 0)) for name, at in (("open", 1), ("openat", 2))),
    *((name, (at, _MODE, mode)) for name, at in (("open", 1), ("openat", 2)) for mode in (1, 2)),
)
"""(name, (number of an argument, mask, value) ...): allowed where each argument under its mask is its value.

    clone       threads, not processes
    prctl       names, timers, what only reads; not the signal that comes when the parent dies
    ioctl       the size of a terminal, blocking, closing
    fcntl       descriptors, flags, locks; not the process that a signal of a file goes to
    socketpair  AF_UNIX, of a stream or of packets: a datagram could be sent to any socket of the machine
    prlimit64, sched_setaffinity  its own
    open        a file is emptied only where it is opened for writing
"""

WHERE_IT_STARTS_OTHERS = (("clone", (0, _NEW_NAMESPACES, 0)),)
WHERE_IT_HAS_DEVICES = ("ioctl", "memfd_create", "mlockall", "sched_setscheduler", "setpriority")
WHERE_A_DRIVER_LISTENS = (("socket", (0, WORD, 1), (1, 15, 5)), ("connect",), ("bind",), ("listen",))
"""CUDA's driver makes an abstract socket of its own when it starts, and ends with error 304 where it cannot (Linux 6.18, H100).

It is of the family AF_UNIX and the type SOCK_SEQPACKET, and no other is allowed: a stream or a datagram socket of the machine, as
those of container engines and message buses are, refuses it (``EPROTOTYPE``). Abstract sockets of others are kept from it by the
network namespace, or by Landlock's scopes.
"""

TO_ITSELF = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
"""Signals, where the first argument is the number of the process itself."""

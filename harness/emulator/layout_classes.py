"""What Triton's bindings hold of Gluon's layout classes when a process ends.

Asked for the layout of a tensor once, the bindings keep the classes in C++ for good. Through their methods the classes keep the
globals of their modules, and so all that these import. At the end of the process nanobind then prints a page of "leaked" instances,
types and functions. Triton alone does so too, after it compiled a Gluon kernel that infers a layout. The interpreter clears the
globals of a module that is still referenced when it ends, so those modules are made to be.
"""

from __future__ import annotations

import ctypes

from triton.experimental.gluon.language import _layouts
from triton.experimental.gluon.language.amd import _layouts as amd_layouts
from triton.experimental.gluon.language.nvidia import blackwell

for module in (_layouts, amd_layouts, blackwell):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))

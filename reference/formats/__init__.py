"""Number formats: one record type, one decoder, one encoder, one file a format.

A *code* is the bits of a number, a *value* what it means. To add a format: write its file, import it here (see the guide in docs).
"""

from bitverdict.reference.formats.bf16 import BF16
from bitverdict.reference.formats.convert import conversion, convert
from bitverdict.reference.formats.decode import decode
from bitverdict.reference.formats.e2m1 import E2M1
from bitverdict.reference.formats.e2m3 import E2M3
from bitverdict.reference.formats.e3m2 import E3M2
from bitverdict.reference.formats.e4m3 import E4M3
from bitverdict.reference.formats.e4m3fnuz import E4M3FNUZ
from bitverdict.reference.formats.e5m2 import E5M2
from bitverdict.reference.formats.e5m2fnuz import E5M2FNUZ
from bitverdict.reference.formats.e8m0 import E8M0
from bitverdict.reference.formats.encode import encode
from bitverdict.reference.formats.fp16 import FP16
from bitverdict.reference.formats.fp32 import FP32
from bitverdict.reference.formats.record import Format, Overflow, Rounding, Specials
from bitverdict.reference.formats.tf32 import TF32
from bitverdict.reference.formats.ue4m3 import UE4M3

FORMATS: dict[str, Format] = {
    fmt.name: fmt for fmt in (E2M1, E2M3, E3M2, E4M3, E4M3FNUZ, E5M2, E5M2FNUZ, E8M0, UE4M3, FP16, BF16, TF32, FP32)
} | {fmt.name: fmt for fmt in list(globals().values()) if isinstance(fmt, Format)}

__all__ = [
    "BF16",
    "E2M1",
    "E2M3",
    "E3M2",
    "E4M3",
    "E4M3FNUZ",
    "E5M2",
    "E5M2FNUZ",
    "E8M0",
    "FORMATS",
    "FP16",
    "FP32",
    "TF32",
    "UE4M3",
    "Format",
    "Overflow",
    "Rounding",
    "Specials",
    "conversion",
    "convert",
    "decode",
    "encode",
]

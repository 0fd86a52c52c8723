"""Number formats: one record type, one decoder, one encoder, one record a format.

A *code* is the bits of a number, a *value* what it means. To add a format: a record in `number_formats.py` (see the guide in docs).
"""

from bitverdict.reference.formats.convert import conversion, convert
from bitverdict.reference.formats.decode import decode
from bitverdict.reference.formats.encode import encode
from bitverdict.reference.formats.number_formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FORMATS,
    FP16,
    FP32,
    TF32,
    UE4M3,
)
from bitverdict.reference.formats.record import Format, Overflow, Rounding, Specials

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

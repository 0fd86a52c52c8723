"""The few elements of SVG that pictures are drawn with, as text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

STYLE = Path(__file__).with_name("colours.css")


def element(name: str, *inner: str, **attributes: object) -> str:
    """One element. A trailing underscore of an attribute's name is left out, others are dashes; numbers have one digit."""
    said = "".join(f' {key.rstrip("_").replace("_", "-")}="{_text(value)}"' for key, value in attributes.items())
    return f"<{name}{said}>{''.join(inner)}</{name}>" if inner else f"<{name}{said}/>"


def _text(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value))


def title_element(text: str) -> str:
    """What a pointer that rests on the element is told."""
    return f"<title>{escape(text)}</title>"


def text(x: float, y: float, said: str, class_: str = "", anchor: str = "start") -> str:
    return element("text", escape(said), x=float(x), y=float(y), class_=class_ or "label", text_anchor=anchor)


def picture(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    """An image of `width` by `height` pixels that a screen reader calls `label`."""
    size = f"0 0 {width:.0f} {height:.0f}"
    inner = "".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" aria-label="{escape(label)}" '
        f'viewBox="{size}" width="{width:.0f}" height="{height:.0f}">{inner}</svg>'
    )


def as_file(image: str) -> str:
    """`image` as a file of its own, with its colours."""
    begun, _, rest = image.partition(">")
    return f'{begun}><style>{STYLE.read_text()}</style><rect class="paper" width="100%" height="100%"/>{rest}\n'

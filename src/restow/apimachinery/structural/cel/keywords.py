"""Words that CEL does not accept as identifiers."""

from __future__ import annotations

from typing import Final

RESERVED: Final = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
"""Reserved for future use: not valid as identifiers, without a meaning yet."""

KEYWORDS: Final = RESERVED | {"true", "false", "null", "in"}

"""Escaping of untrusted text for the terminal."""


def shown(text: str) -> str:
    """Replace control characters, which could move the cursor or change colors."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)

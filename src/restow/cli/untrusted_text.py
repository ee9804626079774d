"""Texts that others wrote, on the terminal of a person."""


def shown(text: str) -> str:
    """A text of others, without what would move the cursor or colour the rest."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)

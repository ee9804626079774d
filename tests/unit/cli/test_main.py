"""The table of commands: words that no command knows."""

import pytest

from restow.cli.main import main


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("serve --nonsense", "restow serve"),
        ("up one two", "restow up"),
        ("store put key value --nonsense", "restow store put"),
        ("--nonsense", "restow"),
        ("--nonsense serve", "restow"),
    ],
)
def test_an_unknown_word_is_answered_with_the_usage_of_its_command(
    words: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who mistypes an option is shown the options that there are."""
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"usage: {program} ")
    assert f"\n{program}: error: unrecognized arguments: " in said

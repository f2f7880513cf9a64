"""The plain reader of command lines and typer's agree on every line that the plain one takes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kvtax.cli import COMMANDS, load_command
from kvtax.cli.app import make_click_command
from kvtax.cli.options import FLAG, MANY, Command
from kvtax.cli.plain_words import read_plainly

VALUE = st.one_of(
    st.sampled_from(["8k", "-", "a=b", "llama-3-8b", "0.9", "x y", "é"]),
    st.text(max_size=8).filter(lambda text: "\0" not in text),
)


def words_of(command: Command) -> st.SearchStrategy[list[str]]:
    pieces = [VALUE.map(lambda value: [value])]
    for option in command.options:
        for flag in option.flags + option.also + option.off:
            if option.kind == FLAG:
                pieces.append(st.just([flag]))
            else:
                pieces.append(VALUE.map(lambda value, flag=flag: [flag, value]))
                if flag.startswith("--"):
                    pieces.append(VALUE.map(lambda value, flag=flag: [f"{flag}={value}"]))
    return st.lists(st.one_of(pieces), max_size=6).map(lambda parts: [word for part in parts for word in part])


def read_with_typer(command: Command, words: list[str]) -> dict:
    found = {}

    def keep(values):
        found.update(values)
        return 0

    assert (
        make_click_command(command._replace(run=keep)).main(args=words, prog_name="kvtax", standalone_mode=False) == 0
    )
    return found


@given(st.data())
@settings(deadline=None)
def test_both_readers_give_the_same_values(data):
    command = load_command(data.draw(st.sampled_from(sorted(COMMANDS))))
    words = data.draw(words_of(command))
    plainly = read_plainly(command, words)
    if plainly is not None:
        assert plainly == read_with_typer(command, words)


def test_an_ordinary_line_is_read_plainly():
    command = load_command("budget")
    values = read_plainly(
        command, ["-m", "a", "-g", "b", "--gpu=c", "--ep", "--no-async-scheduling", "--context", "8k"]
    )
    assert values is not None
    assert values["model"] == "a"
    assert values["gpu"] == ("b", "c")
    assert values["expert_parallel"] is True
    assert values["async_scheduling"] is False
    assert values["enforce_eager"] is None
    assert values["max_model_len"] == "8k"


def test_what_is_not_plain_is_left_to_typer():
    command = load_command("budget")
    for words in (["--help"], ["--modle", "x"], ["-mx"], ["--"], ["a", "b"], ["--json=1"], ["-m"], ["-m", "--json"]):
        assert read_plainly(command, words) is None


def test_no_flag_means_two_things_and_every_option_is_described():
    for name in COMMANDS:
        command = load_command(name)
        flags = [flag for option in command.options for flag in option.flags + option.off + option.also]
        assert len(flags) == len(set(flags))
        assert len({option.name for option in command.options}) == len(command.options)
        assert all(option.help.endswith((".", "]")) for option in command.options)
        assert all(option.kind != MANY or option.metavar for option in command.options)
        assert len(command.examples) == 3
        assert all(line.startswith(f"kvtax {name}") for _, line in command.examples)

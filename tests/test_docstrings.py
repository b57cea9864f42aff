"""Public names explain their arguments: numpydoc sections for everything with three or more of them."""

import inspect
import re

import pytest

import stackfu as sf

#: A function with fewer parameters may say all in its first lines.
FEW = 3


def public_functions():
    for name in sf.__all__:
        thing = getattr(sf, name)
        if inspect.isclass(thing):
            for own, value in vars(thing).items():
                function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
                if inspect.isfunction(function) and not own.startswith("_"):
                    yield f"{name}.{own}", function
        elif inspect.isfunction(thing):
            yield name, thing


PUBLIC = dict(public_functions())


def parameters(function):
    taken = inspect.signature(function).parameters
    return [
        name for name, one in taken.items() if name not in ("self", "cls") and one.kind != one.VAR_KEYWORD
    ]


def section(function, title):
    found = re.search(
        rf"^{title}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", inspect.getdoc(function) or "", re.DOTALL | re.MULTILINE
    )
    return found[1] if found else ""


@pytest.mark.parametrize("name", [name for name, f in PUBLIC.items() if len(parameters(f)) >= FEW])
def test_parameters_and_results_have_sections(name):
    function = PUBLIC[name]
    heads = re.findall(r"^(\w[^\n]*)$", section(function, "Parameters"), re.MULTILINE)
    described = {word.strip(" *") for head in heads for word in head.split(" : ")[0].split(",")}
    assert not set(parameters(function)) - described
    assert section(function, "Returns")


@pytest.mark.parametrize("name", PUBLIC)
def test_the_first_line_is_one_sentence(name):
    first = (inspect.getdoc(PUBLIC[name]) or "").split("\n\n")[0]
    assert first.rstrip().endswith((".", ":"))
    assert not re.match(r"(What|Whether|Who|Whose|Where|How|Why|Which)\b", first)


def test_the_rule_reads_public_functions():
    assert len(PUBLIC) > 80
    assert {"mmd", "StackelbergGame.solve", "MeanEmbeddings.from_samples"} <= set(PUBLIC)

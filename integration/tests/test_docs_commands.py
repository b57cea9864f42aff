"""Command lines of the second package in the documentation name commands and options that exist."""

import re
import shlex
from pathlib import Path

import typer

from stackfu_integration.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "integration" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def command_lines():
    for page in PAGES:
        if "_build" in page.parts:
            continue
        for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                if line.startswith("$ stackfu-lab"):
                    yield page.name, re.sub(r"\s+#\s.*", "", line[2:])


def test_commands_and_options_exist():
    seen = 0
    for page, line in command_lines():
        command, words = typer.main.get_command(app), shlex.split(line)[1:]
        while words and words[0] in getattr(command, "commands", {}):
            command, words = command.commands[words[0]], words[1:]
        if hasattr(command, "default"):  # a group of which one command need not be named
            command = command.commands[command.default]
        assert not getattr(command, "commands", {}), f"{page}: {line} names no command"
        known = {
            name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
        }
        for word in words:
            if word.startswith("-"):
                assert word.split("=")[0] in known, f"{page}: {line} has no option {word}"
        seen += 1
    assert seen > 10

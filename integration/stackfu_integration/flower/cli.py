"""``stackfu-lab ledger``, ``stackfu-lab audit`` and ``stackfu-lab flower``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from stackfu.errors import InputError

app = typer.Typer(no_args_is_help=True, add_completion=False)
flower = typer.Typer(no_args_is_help=True, add_completion=False, help="Run the mechanism with Flower.")
app.add_typer(flower, name="flower")

Run = Annotated[Path, typer.Argument(help="folder of the run, or its ledger.sqlite")]
Settings = Annotated[
    list[str] | None, typer.Option("--run-config", "-c", help="overrides of the app's config: key=value")
]


def _ledger_file(run: Path) -> Path:
    return run / "ledger.sqlite" if run.is_dir() else run


@app.command()
def ledger(
    run: Run,
    request: Annotated[str | None, typer.Option(help="only this removal request")] = None,
    kind: Annotated[str | None, typer.Option(help="only events of this kind, e.g. payment")] = None,
) -> None:
    """Print the ledger of a run: offers, responses, work done and payments, one row per event."""
    from stackfu_integration.flower.events import NOBODY
    from stackfu_integration.flower.ledger import PaymentLedger

    table = Table("time", "request", "event", "client", "round", "amount", "detail", box=None)
    for column in ("client", "round", "amount"):
        next(c for c in table.columns if c.header == column).justify = "right"
    with PaymentLedger(_ledger_file(run), create=False) as book:
        for row in book.rows(request, kind):
            detail = ", ".join(f"{k}={_short(v)}" for k, v in row.detail.items())
            table.add_row(
                row.at[:19].replace("T", " "),
                row.request,
                row.kind,
                "" if row.client == NOBODY else str(row.client),
                "" if row.round == NOBODY else str(row.round),
                "" if row.amount is None else f"{row.amount:.6g}",
                detail if len(detail) <= 120 else f"{detail[:117]}...",
            )
    Console(width=None if Console().is_terminal else 220).print(table)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return f"{text[:10]}…" if len(text) == 64 else text


@app.command()
def audit(
    run: Run,
    request: Annotated[str | None, typer.Argument(help="removal request; the last one by default")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Markdown as it is in the file")] = False,
) -> None:
    """Write the audit of a removal request (Markdown and JSON) again from the ledger, and print it."""
    from stackfu_integration.flower.audit import render, write_audit
    from stackfu_integration.flower.ledger import PaymentLedger

    path = _ledger_file(run)
    with PaymentLedger(path, create=False) as book:
        known = book.requests()
        if request is None:
            if not known:
                raise InputError("run", "there is no removal request in the ledger", value=run)
            request = known[-1]
        text = render(write_audit(book, request, path.parent))
    if plain:
        typer.echo(text)
    else:
        Console().print(Markdown(text))


@flower.command()
def simulate(
    settings: Settings = None,
    folder: Annotated[Path | None, typer.Option("--app", help="folder of the Flower app")] = None,
    engine: Annotated[str, typer.Option(help="ray (Flower's simulation engine) or none")] = "ray",
) -> None:
    """Run the app on this machine, in Flower's simulation engine or without any engine."""
    from stackfu_integration.flower.simulation import APP_FOLDER, load_app, run_in_process
    from stackfu_integration.flower.simulation import simulate as simulated

    if engine not in ("ray", "none"):
        raise InputError("engine", "must be ray or none", value=engine)
    given, chosen = _read(settings), folder or APP_FOLDER
    (simulated if engine == "ray" else run_in_process)(chosen, **given)
    _, _, config = load_app(chosen, given)
    _finish(Path(str(config["folder"])), str(config["request"]))


@flower.command()
def deploy(
    settings: Settings = None,
    folder: Annotated[Path | None, typer.Option("--app", help="folder of the Flower app")] = None,
    keep: Annotated[Path, typer.Option("--deployment", help="certificates, keys and logs")] = Path(
        "deployment"
    ),
    timeout: Annotated[float, typer.Option(help="seconds until the run must be over")] = 1800.0,
) -> None:
    """Start a SuperLink and SuperNodes with TLS and node authentication, run the app, and stop them."""
    from stackfu_integration.flower.deployment import Deployment, DeploymentError
    from stackfu_integration.flower.simulation import APP_FOLDER, load_app

    given, chosen = _read(settings), folder or APP_FOLDER
    _, _, config = load_app(chosen, given)
    given = {name: config[name] for name in given}  # with the types that the app has
    given["folder"] = str(Path(str(config["folder"])).resolve())  # the server app runs elsewhere
    with Deployment(keep, int(config["clients"]), chosen) as deployment:
        state = deployment.wait_for(deployment.submit(**given), timeout)
    if state != "finished:completed":
        raise DeploymentError(f"the run ended as {state}; logs are in {keep / 'logs'}")
    _finish(Path(given["folder"]), str(config["request"]))


@flower.command()
def scale(
    clients: Annotated[list[int] | None, typer.Option(help="numbers of clients; may be repeated")] = None,
    engine: Annotated[str, typer.Option(help="ray or none")] = "none",
    out: Annotated[Path | None, typer.Option(help="write the figures as JSON")] = None,
) -> None:
    """Measure the time of the mechanism's phases and the bytes that pass, by number of clients."""
    from stackfu_integration.flower.scale import measure, tabulate
    from stackfu_integration.storage import write_json

    figures = [measure(count, engine) for count in clients or [10, 100, 1000]]
    if out is not None:
        write_json(out, figures)
    Console().print(tabulate(figures))


def _read(settings: list[str] | None) -> dict[str, Any]:
    """Read ``key=value`` pairs, several of them in one option allowed, as Flower does."""
    given: dict[str, Any] = {}
    for pair in (pair for option in settings or [] for pair in option.split()):
        key, separator, value = pair.partition("=")
        if not separator:
            raise InputError("run-config", "must look like key=value", value=pair)
        given[key] = _value(value.strip("'\""))
    return given


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _finish(folder: Path, request: str) -> None:
    Console().print(f"audit: {folder / f'audit-{request}.md'}   ledger: stackfu-lab ledger {folder}")

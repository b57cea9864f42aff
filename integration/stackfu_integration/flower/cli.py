"""``stackfu-lab ledger``, ``stackfu-lab audit`` and ``stackfu-lab flower``."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from typer.core import TyperGroup

from stackfu.errors import InputError
from stackfu_integration.flower.naming import one_line

if TYPE_CHECKING:
    from stackfu_integration.flower.ledger import PaymentLedger
    from stackfu_integration.flower.verification import Evidence, Report

app = typer.Typer(no_args_is_help=True, add_completion=False)
flower = typer.Typer(no_args_is_help=True, add_completion=False, help="Run the mechanism with Flower.")
app.add_typer(flower, name="flower")

Run = Annotated[Path, typer.Argument(help="folder of the run, or its ledger.sqlite")]
Settings = Annotated[
    list[str] | None, typer.Option("--run-config", "-c", help="overrides of the app's config: key=value")
]


_PAIR = re.compile(r"""(?<!\S)([\w.-]+)=(?:(['"])(.*?)\2|(\S*))(?!\S)""")


def _ledger_file(run: Path) -> Path:
    return run / "ledger.sqlite" if run.is_dir() else run


@app.command()
def ledger(
    run: Run,
    request: Annotated[str | None, typer.Option(help="only this removal request")] = None,
    kind: Annotated[str | None, typer.Option(help="only events of this kind, e.g. payment")] = None,
    export: Annotated[
        Path | None, typer.Option(help="write all rows, receipts and the signed head as JSON instead")
    ] = None,
) -> None:
    """Print the ledger of a run: offers, responses, work done and payments, one row per event."""
    from stackfu_integration.flower.events import EVENTS, NO_CLIENT
    from stackfu_integration.flower.ledger import PaymentLedger
    from stackfu_integration.flower.rows import told
    from stackfu_integration.storage import write_json

    if export is not None and (request is not None or kind is not None):
        raise InputError(
            "export", "is of all rows, by which alone they can be checked: no --request, no --kind"
        )
    if kind is not None and kind not in EVENTS:
        raise InputError("kind", f"must be one of {', '.join(sorted(EVENTS))}", value=kind)
    if export is not None:
        with PaymentLedger.snapshot(_ledger_file(run)) as book:
            write_json(export, book.exported())
        return

    table = Table("time", "request", "event", "client", "round", "amount", "detail", box=None)
    for column in ("client", "round", "amount"):
        next(c for c in table.columns if c.header == column).justify = "right"
    with PaymentLedger.snapshot(_ledger_file(run)) as book:
        who, known = book.naming, book.requests()
        if request is not None and request not in known:
            raise InputError("request", f"must be one of {', '.join(known) or 'none'}", value=request)
        for row in book.rows(request, kind):
            detail = ", ".join(f"{_short(k)}={_short(v)}" for k, v in told(row, who).items())
            table.add_row(
                _short(row.at[:19].replace("T", " ")),
                _short(row.request),
                _short(row.kind),
                "" if row.client == NO_CLIENT else who(row.client),
                "" if row.round == NO_CLIENT else str(row.round),
                "" if row.amount is None else f"{row.amount:.6g}",
                detail if len(detail) <= 120 else f"{detail[:117]}...",
            )
    width = None if Console().is_terminal else 220
    Console(width=width, markup=False, emoji=False).print(table)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_short(key)}: {_short(held)}" for key, held in value.items()) + "}"
    text = one_line(str(value))
    return f"{text[:10]}…" if len(text) in (64, 128) else text  # a hash or key, a signature


class _WithDefault(TyperGroup):
    """A group of commands of which one need not be named."""

    default = "recompute"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command where none is named."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [self.default, *args]
        return super().parse_args(ctx, args)


CODES = (
    "Exit codes: 0 everything fits and no evidence is missing, 1 something does not fit, 2 the command is typed "
    "wrongly or there is no "
    "ledger, 3 the request was aborted, 4 questions are open."
)
audits = typer.Typer(
    cls=_WithDefault,
    no_args_is_help=True,
    add_completion=False,
    help=f"Recompute a removal request: stackfu-lab audit RUN. {CODES}",
)
app.add_typer(audits, name="audit")


@audits.command("recompute", epilog=CODES)
def audit(
    run: Run,
    request: Annotated[str | None, typer.Argument(help="removal request; the last one by default")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Markdown as it is in the file")] = False,
    server_key: Annotated[
        Path | None, typer.Option(help="the server's public key, from a source you trust")
    ] = None,
    client_keys: Annotated[
        Path | None,
        typer.Option(help="folder of clients' public keys: 3.pub, or Leeds.pub where clients have names"),
    ] = None,
    receipts: Annotated[
        list[Path] | None, typer.Option(help="receipts.jsonl, or the folder, of a client; may be repeated")
    ] = None,
    evidence: Annotated[
        Path | None, typer.Option(help="folder that `stackfu-lab audit collect` filled: all of the above")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="write the audit and what was found there, and nothing into the run's folder"),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace a published audit that says something else")
    ] = False,
) -> None:
    """Recompute a removal request from ledger, models and keys, and print what fits, what is open and the audit itself.

    Open questions come first. The run's folder is only read, but for an audit that is missing there; a published one that says
    something else is left as it is, with a warning.
    """
    from stackfu_integration.flower.audit import audit as facts_of
    from stackfu_integration.flower.audit import render
    from stackfu_integration.flower.ledger import PaymentLedger, SchemaError
    from stackfu_integration.flower.verification import Report, verify, verify_ledger

    path, facts = _ledger_file(run), None
    try:
        with PaymentLedger.snapshot(path) as book:
            known = book.requests()
            if not known:
                raise InputError("run", "there is no removal request in the ledger", value=run)
            if request is not None and request not in known:
                raise InputError(
                    "request", f"is not in the ledger (known: {', '.join(known)})", value=request
                )
            about = known[-1] if request is None else request
            report = verify_ledger(
                book, _evidence(book, server_key, client_keys, receipts or [], evidence), about=about
            )
            if report:  # from records that do not fit nothing is concluded
                facts = facts_of(book, about)
                report = _published(book, about, facts, report, out or path.parent, overwrite)
    except SchemaError:
        report, about = verify(path), request or "r1"
    lines = [*report.first_lines(), *([] if facts is None else [render(facts)]), *report.last_lines()]
    text = "\n".join(lines) + "\n"
    if out is not None:
        _write_found(out, about, report, text)
    if plain:
        typer.echo(text)
    else:
        Console().print(Markdown(text))
    assert isinstance(report, Report)
    if report.code:
        raise typer.Exit(report.code)


def _published(
    book: PaymentLedger, request: str, facts: dict[str, Any], report: Report, folder: Path, overwrite: bool
) -> Report:
    """Write the audit where it is missing, and add a question where another one is published."""
    from stackfu_integration.flower.audit import publish
    from stackfu_integration.flower.keys import SigningKey

    private = book.path.parent / "keys" / "server.key"
    key = SigningKey.load(private) if private.is_file() else None
    if key is not None and (book.head is None or key.public != book.head.key):
        key = None
    try:
        different = publish(book, request, facts, folder, key, overwrite=overwrite)
    except OSError as error:
        if folder != book.path.parent:
            raise InputError("out", f"cannot be written ({error.strerror})", value=folder) from error
        return report  # a copy that may only be read
    questions = tuple(
        f"who changed {path.name}, which was published: it is not what the ledger says. It is left as it is; --out "
        "FOLDER writes what the "
        "ledger says, and --overwrite replaces it"
        for path in different
    )
    return replace(report, open_questions=(*questions, *report.open_questions))


def _write_found(out: Path, request: str, report: Report, text: str) -> None:
    """Write the findings of an audit next to the audit itself."""
    from stackfu_integration.storage import write_json, write_text

    write_json(out / f"found-{request}.json", report.plain())
    write_text(out / f"found-{request}.md", text)


@audits.command(epilog=CODES)
def verify(
    file: Annotated[Path, typer.Argument(help="an audit (.md or .json), or a ledger that was exported")],
    server_key: Annotated[
        Path | None, typer.Option(help="the server's public key, from a source you trust")
    ] = None,
) -> None:
    """Check the server's signature under an audit, or the chain and the signed head of an exported ledger.

    Exit code 4 means that there is no signature, or that the key in the file itself had to be trusted.
    """
    from stackfu_integration.flower.audit import check_file
    from stackfu_integration.flower.keys import read_public_key

    problem, said = check_file(file, None if server_key is None else read_public_key(server_key))
    if problem == "nobody signed it":
        typer.echo(f"{file}: {problem}")
        raise typer.Exit(4)
    if problem is not None:
        typer.echo(f"{file}: does not fit: {problem}")
        raise typer.Exit(1)
    typer.echo(f"{file}: {said}")
    if server_key is None:
        typer.echo("Open: if that key is the server's; give --server-key")
        raise typer.Exit(4)


@audits.command()
def collect(
    run: Run,
    folders: Annotated[list[str], typer.Argument(help="folders of clients, or NAME=FOLDER")],
    out: Annotated[Path, typer.Option(help="folder to fill")] = Path("evidence"),
) -> None:
    """Collect the clients' public keys, receipts and models by name, and the server's key as they know it."""
    from stackfu_integration.flower.collected import collect as collect_evidence
    from stackfu_integration.flower.ledger import PaymentLedger

    with PaymentLedger.snapshot(_ledger_file(run)) as book:
        names = collect_evidence(book, folders, out)
    typer.echo(f"{out}: {len(names)} clients ({', '.join(names)})")


def _evidence(
    book: PaymentLedger,
    server_key: Path | None,
    client_keys: Path | None,
    receipts: list[Path],
    folder: Path | None,
) -> Evidence:
    """Read the evidence for an audit."""
    from stackfu_integration.flower.collected import read_client_keys, read_evidence, read_kept
    from stackfu_integration.flower.keys import read_public_key
    from stackfu_integration.flower.verification import Evidence

    found = Evidence() if folder is None else read_evidence(book, folder)
    keys = dict(found.client_keys)
    if client_keys is not None:
        keys |= read_client_keys(book, client_keys)
    kept = tuple(receipt for path in receipts for receipt in read_kept(path))
    works = tuple(path / "work" for path in receipts if (path / "work").is_dir())
    return replace(
        found,
        server_key=found.server_key if server_key is None else read_public_key(server_key),
        client_keys=keys,
        receipts=(*found.receipts, *kept),
        works=(*found.works, *works),
    )


@flower.command()
def simulate(
    settings: Settings = None,
    folder: Annotated[Path | None, typer.Option("--app", help="folder of the Flower app")] = None,
    engine: Annotated[str, typer.Option(help="ray (Flower's simulation engine) or none")] = "ray",
    policy: Annotated[str, typer.Option(help="open: the simulated clients release everything")] = "",
) -> None:
    """Run the app on this machine, in Flower's simulation engine or without any engine."""
    from stackfu_integration.flower.simulation import APP_FOLDER, load_app, run_in_process
    from stackfu_integration.flower.simulation import simulate as simulated

    if engine not in ("ray", "none"):
        raise InputError("engine", "must be ray or none", value=engine)
    if policy not in ("", "open"):
        raise InputError("policy", "must be open, or left out", value=policy)
    given, chosen = _read(settings), folder or APP_FOLDER
    _, _, config = load_app(chosen, given)
    (simulated if engine == "ray" else run_in_process)(chosen, policy=policy, **given)
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

    typed, chosen = _read(settings), folder or APP_FOLDER
    _, _, config = load_app(chosen, typed)
    given = {name: config[name] for name in typed}  # with the types that the app has
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


@flower.command()
def load(
    clients: Annotated[int, typer.Option(help="how many clients, a fifth of them faulty")] = 1000,
    kills: Annotated[int, typer.Option(help="how often the server is killed")] = 50,
    pairs: Annotated[int, typer.Option(help="how many pairs of servers work at once")] = 3,
    cuts: Annotated[int | None, typer.Option(help="power cuts to try; all of them by default")] = None,
    out: Annotated[Path | None, typer.Option(help="write the counts as JSON")] = None,
) -> None:
    """Count what becomes of the records: faulty clients, a killed server, two servers at once, the power cut at every write."""
    from stackfu_integration.flower.load import (
        count_faults_and_kills,
        count_two_servers,
        terms_of_the_load,
    )
    from stackfu_integration.flower.power_cuts import METHODS, count_power_cuts
    from stackfu_integration.storage import write_json

    counts = {
        "faults_and_kills": count_faults_and_kills(clients, kills),
        "two_servers": count_two_servers(pairs=pairs),
        "power_cuts": {
            name: count_power_cuts(terms_of_the_load(**changes), most=cuts)
            for name, changes in METHODS.items()
        },
    }
    if out is not None:
        write_json(out, counts)
    Console().print_json(data=counts)


@flower.command()
def privacy(
    out: Annotated[Path | None, typer.Option(help="write the figures as JSON")] = None,
    draws: Annotated[int, typer.Option(help="how often noise is drawn")] = 3,
) -> None:
    """Measure what embeddings give away, and what noise costs, on the digits federation."""
    from stackfu_integration.flower.reconstruction import measure_privacy
    from stackfu_integration.storage import write_json

    figures = measure_privacy([None, 8.0, 4.0, 2.0, 1.0], [64, 256], draws=draws)
    if out is not None:
        write_json(out, figures)
    table = Table(
        "epsilon", "features", "AUC", "worst client", "class mix off by", "server loss", "spend", box=None
    )
    for f in figures:
        numbers = (
            f[k] for k in ("auc_mean", "auc_worst", "class_mix_error", "server_loss", "spend_of_budget")
        )
        table.add_row(
            "none" if f["epsilon"] is None else f"{f['epsilon']:g}",
            str(f["features"]),
            *(f"{n:.3g}" for n in numbers),
        )
    Console().print(table)


@flower.command()
def directions(
    out: Annotated[Path | None, typer.Option(help="write the figures as JSON")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="federations per heterogeneity")] = 3,
) -> None:
    """Measure how often directions refuse honest clients, and flipped signs, on digits federations."""
    from stackfu_integration.flower.directions import measure_directions
    from stackfu_integration.storage import write_json

    figures = measure_directions(seeds=range(seeds))
    if out is not None:
        write_json(out, figures)
    table = Table("β", "least cosine", "honest rounds refused", "flipped rounds refused", box=None)
    for f in figures:
        table.add_row(
            f"{f['beta']:g}",
            f"{f['least_cosine']:g}",
            f"{f['honest_refused']:.1%}",
            f"{f['flipped_refused']:.1%}",
        )
    Console().print(table)


def _read(settings: list[str] | None) -> dict[str, Any]:
    """Read ``key=value`` pairs, several of them in one option allowed and values in quotation marks, as Flower does."""
    given: dict[str, Any] = {}
    for option in settings or []:
        rest = _PAIR.sub("", option).strip()
        if rest:
            raise InputError(
                "run-config",
                "must look like key=value, and a value with spaces stands in quotation marks: -c 'names=\"New York,Hull\"'",
                value=rest,
            )
        given |= {key: quoted or value for key, _, quoted, value in _PAIR.findall(option)}
    return given


def _finish(folder: Path, request: str) -> None:
    """Say where the audit is, and end with 3 if the request was aborted."""
    from stackfu_integration.flower.events import RequestAborted
    from stackfu_integration.flower.ledger import PaymentLedger

    Console().print(f"audit: {folder / f'audit-{request}.md'}   ledger: stackfu-lab ledger {folder}")
    with PaymentLedger.snapshot(folder / "ledger.sqlite") as book:
        aborted = book.last(request, RequestAborted)
    if aborted is not None:
        typer.echo(f"Aborted: {aborted.reason}")
        raise typer.Exit(3)

"""The server: train, then carry out a removal request; after a crash, go on where it was."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from stackfu.cli.parsing import words
from stackfu.embedding.names import check_names
from stackfu_integration.flower import Terms, UnlearningMechanism
from stackfu_integration.flower.lab import initial_arrays

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train with all clients and remove the clients named in the run config."""
    run = context.run_config
    names, count = words(str(run["names"])), int(run["clients"])
    mechanism = UnlearningMechanism(
        Path(str(run["folder"])),
        check_names(names, count) if names else count,
        Terms.from_config(run),
        timeout=float(run["timeout"]),
        wait=float(run["wait"]),
        client_keys=Path(str(run["client-keys"])) if run["client-keys"] else None,
    )
    removed = words(str(run["removed"]))
    mechanism.leaving(removed)  # a wrong name is refused before hours of training
    mechanism.train(grid, initial_arrays(run), rounds=int(run["training-rounds"]))
    mechanism.remove(grid, removed, request=str(run["request"]))

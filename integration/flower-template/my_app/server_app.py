"""The server: train, then remove the clients named in the run config."""

from pathlib import Path

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from my_app.app import Network
from stackfu_integration.flower import Terms, UnlearningMechanism
from stackfu_integration.flower.torch_client import model_arrays

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train with all clients and remove some; after a crash, continue where it stopped."""
    run = context.run_config
    mechanism = UnlearningMechanism(Path(str(run["folder"])), int(run["clients"]), Terms.from_config(run))
    removed = str(run["removed"]).split(",")
    mechanism.leaving(removed)  # a wrong name is refused before hours of training
    torch.manual_seed(0)
    mechanism.train(grid, model_arrays(Network()), rounds=int(run["training-rounds"]))
    mechanism.remove(grid, removed, request=str(run["request"]))

"""Flower's own SecAgg+, run as it comes: why the mechanism does not use it. A newer Flower that mends this fails here."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from stackfu_integration.flower import InProcessGrid
from stackfu_integration.flower.wire import UNLEARN

pytestmark = pytest.mark.filterwarnings("ignore")

NUMBERS = 40


def updates(client: int):
    return np.random.default_rng(client).normal(size=NUMBERS).astype(np.float32)


@pytest.fixture
def summed():
    """Two clients, a server of the old interface, and what passed between them."""
    from flwr.client.mod import secaggplus_mod
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
    from flwr.compat.common import recorddict_compat as compat
    from flwr.server import ServerConfig, SimpleClientManager
    from flwr.server.compat.grid_client_proxy import GridClientProxy
    from flwr.server.compat.legacy_context import LegacyContext
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
    from flwr.server.workflow.secure_aggregation import SecAggPlusWorkflow

    app, seen = ClientApp(), {}

    @app.train(mods=[secaggplus_mod])
    def train(message, context):
        update = updates(context.node_config["partition-id"])
        answer = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([update]), 1000, {})
        return Message(compat.fitres_to_recorddict(answer, True), reply_to=message)

    class Listening(InProcessGrid):
        def _deliver(self, message):
            reply = self.answer(message)
            told = reply.content.config_records["secaggplus_configs"]
            if "masked_params" in told:
                seen[message.metadata.dst_node_id] = told["masked_params"]
            return reply

    grid, manager = Listening(app, [{"partition-id": i} for i in range(2)], wire=True), SimpleClientManager()
    for node in grid.get_node_ids():
        manager.register(GridClientProxy(node_id=node, grid=grid, run_id=1))
    strategy = FedAvg(min_fit_clients=2, min_available_clients=2)
    bare = Context(1, 1, {}, RecordDict(), {})
    context = LegacyContext(bare, ServerConfig(num_rounds=1), strategy, manager)
    start = ndarrays_to_parameters([np.zeros(NUMBERS, np.float32)])
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(start, True)
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    SecAggPlusWorkflow(num_shares=1.0, reconstruction_threshold=1.0)(grid, context)
    record = compat.arrayrecord_to_parameters(context.state.array_records[MAIN_PARAMS_RECORD], True)
    return grid, seen, record


def test_it_sums_with_its_own_server_and_rounds_at_random(summed):
    from flwr.common import parameters_to_ndarrays

    _, _, record = summed
    (mean,) = parameters_to_ndarrays(record)
    exact = (updates(0) + updates(1)) / 2
    assert mean == pytest.approx(exact, abs=1e-4)
    assert not np.array_equal(mean.astype(np.float32), exact)


def test_its_client_side_passes_our_messages_by(summed):
    from flwr.client.mod import secaggplus_mod

    order = Message(RecordDict(), dst_node_id=1, message_type=UNLEARN)
    assert secaggplus_mod(order, None, lambda message, context: "untouched") == "untouched"


def test_whoever_guesses_28_bits_reads_an_update(summed):
    """The server opens a client's own mask by right; what is left is a stream with a seed that it can guess.

    A wrong guess leaves numbers all over the 32 bits, the right one numbers that an update can have. Here the guess is among
    some thousands; among all, it takes one core half an hour.
    """
    from flwr.common import bytes_to_ndarray
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
    from flwr.common.secure_aggregation.quantization import dequantize
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
    from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

    grid, seen, _ = summed
    (first, one), (second, _) = sorted(grid.contexts.items())
    states = {n: grid.contexts[n].state.config_records["secaggplus_state"] for n in (first, second)}
    masked = [bytes_to_ndarray(part) for part in seen[first]]
    shapes = [part.shape for part in masked]
    opened = pseudo_rand_gen(
        states[first]["rd_seed"], 2**32, shapes
    )  # the server is given this seed to open the sum
    shared = generate_shared_key(
        bytes_to_private_key(states[first]["sk1"]), bytes_to_public_key(states[second]["pk1"])
    )
    folded = 0
    for at in range(0, len(shared), 4):
        folded ^= int.from_bytes(shared[at : at + 4], "little")
    assert folded & 0x80808080 == 0  # four of 32 bits are never set

    def without(seed):
        mask = pseudo_rand_gen(seed.to_bytes(4, "little"), 2**32, shapes)
        sign = -1 if first > second else 1
        return [(y - b + sign * m) % 2**32 for y, b, m in zip(masked, opened, mask, strict=True)]

    guesses = [seed for seed in range(folded - 2000, folded + 2000) if (without(seed)[1] < 2**22 + 1).all()]
    assert guesses == [folded]
    (read,) = dequantize(without(folded)[1:], 8.0, 2**22)
    assert read == pytest.approx(updates(one.node_config["partition-id"]), abs=1e-4)

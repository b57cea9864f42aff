"""A client: ordinary training as in any Flower app, and the mechanism in one line."""

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from stackfu_integration.flower.client import add_mechanism
from stackfu_integration.flower.lab import LabParticipant

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train one round on all data."""
    client = LabParticipant.from_context(context)
    arrays, used = client.train(message.content["arrays"], 1.0, message.content["config"])
    metrics = MetricRecord({"num-examples": used})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


add_mechanism(app, LabParticipant.from_context)

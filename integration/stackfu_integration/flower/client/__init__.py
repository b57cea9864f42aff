"""The client's side: handlers that an operator adds to the ``ClientApp`` that is there already.

    app = ClientApp()                     # with its own @app.train(), as before
    add_mechanism(app, MyParticipant)     # MyParticipant(context) knows the client's data and model

Raw data stays where it is: what leaves is the mean of random features, with noise, a share between 0 and 1, trained
weights and measures, as far as the client's policy allows it. The client keeps records of its own
(:mod:`~stackfu_integration.flower.client_state`), checks what the server says against them, and signs what it says itself.

- :mod:`.participant`: what an operator writes
- :mod:`.answers`: what is answered to questions
- :mod:`.orders`: work, checked before and signed after
- :mod:`.inbox`: one message, with the records open
- :mod:`.app`: which message goes where
"""

from stackfu_integration.flower.client.app import add_mechanism, training_app
from stackfu_integration.flower.client.participant import Participant, round_of

__all__ = ["Participant", "add_mechanism", "round_of", "training_app"]

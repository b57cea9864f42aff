import numpy as np
import pytest

import stackfu as sf
from stackfu.demo import digits_game


@pytest.fixture(scope="session")
def frontier():
    game = digits_game()
    return game.frontier(np.array([0.0125, 0.05, 0.15]))


@pytest.fixture(scope="session")
def crowd():
    """More clients than are shown one by one; the bound at a budget is not what is looked at."""
    rng = np.random.default_rng(1)
    emb = sf.MeanEmbeddings.from_features(0.2 * rng.normal(size=(230, 4)) + 1.0)
    game = sf.StackelbergGame(emb, rng.integers(20, 200, 230), removed=[0, 1, 2], cost_scale=1.0)
    return game.frontier([0.02 * game.full_participation_price], gap=0.5)

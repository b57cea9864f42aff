import numpy as np
import pytest

from stackfu.demo import digits_game


@pytest.fixture(scope="session")
def frontier():
    game = digits_game()
    return game.frontier(np.array([0.0125, 0.05, 0.15]))

"""A user's session: edit a game, solve it, warm-start, save and load, in any order."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

import stackfu as sf
from stackfu import testing
from stackfu.lemmas import Case


class Session(RuleBasedStateMachine):
    """One game on the table, equilibria found along the way."""

    found = Bundle("found")

    @initialize(game=testing.games(max_clients=4, max_removed=1))
    def open(self, game):
        self.game = game
        self.payments = np.zeros(game.count)
        self.folder = tempfile.TemporaryDirectory()

    @rule(weight=st.sampled_from([0.5, 1.0, 2.0]), name=st.sampled_from(["lambda_v", "lambda_s", "lambda_q"]))
    def edit_weight(self, weight, name):
        before = self.game
        self.game = self.game.replace(**{name: weight})
        assert getattr(self.game, name) == weight
        np.testing.assert_array_equal(before.costs, self.game.costs)

    @rule(factor=st.sampled_from([0.25, 1.0, 4.0]))
    def edit_costs(self, factor):
        self.game = self.game.replace(costs=factor * self.game.costs)

    @rule(data=st.data())
    def pay(self, data):
        self.payments = data.draw(testing.payments(self.game))

    @rule(target=found)
    def solve(self):
        eq = self.game.equilibrium(self.payments)
        assert abs(eq.residual - self.game.residual(self.payments, eq.participation)) <= 1e-14
        assert eq.verify(), eq.verify().message
        return eq

    @rule(eq=found)
    def warm_start(self, eq):
        """Starting where an equilibrium was found (perhaps of another game) still ends at an equilibrium."""
        again = self.game.equilibrium(self.payments, start=eq.participation)
        assert again.verify(), again.verify().message
        if eq.game == self.game and np.array_equal(eq.payments, self.payments) and eq.face is None:
            others = self.game.equilibria(self.payments)
            assert min(abs(again.total - e.total) for e in others) <= 1e-6 * again.total

    @rule(eq=consumes(found), ending=st.sampled_from([".json", ".npz"]))
    def save_and_load(self, eq, ending):
        path = Path(self.folder.name) / f"eq{ending}"
        eq.save(path)
        back = sf.load(path)
        assert back.game == eq.game
        np.testing.assert_array_equal(back.participation, eq.participation)
        self.game, self.payments = back.game, back.payments

    @rule()
    def price_what_is_on_the_table(self):
        case = Case.of(self.game, self.payments)
        try:
            p = self.game.payments_for(case.participation)
        except sf.NotInducibleError:
            return
        assert np.all(p <= self.payments + 1e-7 * self.game.costs)

    @invariant()
    def the_game_is_itself(self):
        if hasattr(self, "game"):
            assert self.game == self.game.replace()
            assert abs(self.game.alpha.sum() - 1) < 1e-12

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestSession = Session.TestCase
TestSession.settings = settings(
    max_examples=max(5, settings.default.max_examples // 8), stateful_step_count=12
)

"""Statements about losses and embeddings: the three metrics and the loss difference bound."""

from __future__ import annotations

import numpy as np

from ..embedding import MeanEmbeddings
from ..game import StackelbergGame
from ..model.geometry import Array, frozen
from .exponential import ClientFamily
from .statement import Applicability, Case, Conclusion, Counterexample, Form, Statement, Verdict, always

__all__ = ["STATEMENTS"]


class _Mixtures:
    """The distributions over original clients that the metrics compare, and the models trained on them."""

    def __init__(self, case: Case) -> None:
        game = case.game
        self.family = ClientFamily(game)
        count = len(game.all_sizes)
        self.used = self._spread(game, case.profile.mixture, count)
        self.remaining = self._spread(game, game.alpha, count)
        self.original = game.all_sizes / game.all_sizes.sum()
        self.clients = [self._spread(game, np.eye(game.count)[k], count) for k in range(game.count)]
        self.unlearned = self.family.fit(self.used)
        self.retrained = self.family.fit(self.remaining)
        self.before = self.family.fit(self.original)

    @staticmethod
    def _spread(game: StackelbergGame, weights: Array, count: int) -> Array:
        out = np.zeros(count)
        out[game.remaining] = weights
        return out


def _effectiveness(case: Case) -> float:
    m = _Mixtures(case)
    return m.family.regularised(m.unlearned, m.remaining) - m.family.regularised(m.retrained, m.remaining)


def _stability(case: Case) -> float:
    m = _Mixtures(case)
    return m.family.regularised(m.unlearned, m.original) - m.family.regularised(m.before, m.original)


def _change_at_original(case: Case) -> float:
    """Q_i vanishes for the original model, for every client."""
    m = _Mixtures(case)
    again = m.family.fit(m.original)
    return -max(abs(m.family.loss(again, d) - m.family.loss(m.before, d)) for d in m.clients)


def _embedding_slack(case: Case) -> float:
    """Inner products of embeddings are positive semidefinite, and averages of embeddings embed mixtures."""
    values = np.linalg.eigvalsh(np.asarray(case.game.embeddings.gram))
    largest = max(float(values[-1]), 1e-300)
    # mu_N = mu(1) is the origin of the game's geometry
    square = case.game.alpha @ case.game.geometry.gram @ case.game.alpha
    return float(min(values[0], -abs(square))) / largest


def _gaps(case: Case) -> tuple[float, float, float]:
    """Bare gap, regularised gap and squared distance of models trained on what is used and what remains."""
    m = _Mixtures(case)
    family = m.family
    plain = family.loss(m.unlearned, m.remaining) - family.loss(m.retrained, m.remaining)
    regularised = family.regularised(m.unlearned, m.remaining) - family.regularised(m.retrained, m.remaining)
    return abs(plain), regularised, family.squared_distance(m.used, m.remaining)


def _loss_bound_stated(case: Case) -> float:
    plain, _, squared = _gaps(case)
    constant = 1.0 / ClientFamily(case.game).reg
    return _relative(constant * squared, plain, case)


def _loss_bound_corrected(case: Case) -> float:
    _, regularised, squared = _gaps(case)
    return _relative(case.game.loss_constant * squared, regularised, case)


def _relative(bound: float, value: float, case: Case) -> float:
    # the value is a difference of losses of size 1, so its rounding error does not shrink with the bound
    size = max(
        bound, 1e-6 * max(case.game.loss_constant * float(np.max(case.game.embeddings.squared_norms)), 1.0)
    )
    return (bound - value) / size


def _loss_bound_counterexample() -> Counterexample:
    """Return two outcomes that never look alike, and a model trained on one part in a hundred fewer of the first."""
    game = StackelbergGame(MeanEmbeddings.from_features(np.eye(2)), sizes=[9, 1])
    x = frozen([0.99, 1.0])
    case = Case.of(game, None, x)
    plain, _, squared = _gaps(case)
    reg = ClientFamily(game).reg
    ratios = {}
    for share in (0.9, 0.99, 0.999):
        gap, _, square = _gaps(Case.of(game, None, [share, 1.0]))
        ratios[share] = round(gap / square, 2)
    return Counterexample(
        game,
        case.payments,
        x,
        "|E_2 log P_w2 - E_2 log P_w1| <= C ||mu_1 - mu_2||^2 with C = 1 / (lambda + kappa) <= 1 / lambda",
        plain,
        squared / reg,
        "Two outcomes with kernel k(a, b) = [a = b]; D_2 is what remains (9 to 1), D_1 what is used. The "
        "regulariser shifts "
        "w_2 away from the maximum of the likelihood, so the unregularised gap is of first order in the "
        "distance and no "
        "constant can bound it by the square.",
        {"lambda": reg, "gap / squared distance at x_1 = 0.9, 0.99, 0.999": ratios},
    )


def _metric_slack(case: Case, regularised: bool) -> float:
    """V, S and Q_i - delta_i against ``C ||.||^2``, with the regularised losses or the plain ones."""
    m, game = _Mixtures(case), case.game
    family, c = m.family, game.loss_constant
    loss = family.regularised if regularised else family.loss
    pairs = [(m.remaining, m.retrained), (m.original, m.before), *((d, family.fit(d)) for d in m.clients)]
    return min(
        _relative(
            c * family.squared_distance(m.used, target), loss(m.unlearned, target) - loss(best, target), case
        )
        for target, best in pairs
    )


def _metric_bounds(case: Case) -> float:
    return _metric_slack(case, regularised=True)


def _metric_bounds_stated(case: Case) -> float:
    return _metric_slack(case, regularised=False)


def _metric_counterexample() -> Counterexample:
    game = StackelbergGame(MeanEmbeddings.from_features(np.eye(2)), sizes=[9, 1])
    x = frozen([0.99, 1.0])
    case = Case.of(game, None, x)
    m = _Mixtures(case)
    value = m.family.loss(m.unlearned, m.remaining) - m.family.loss(m.retrained, m.remaining)
    return Counterexample(
        game,
        case.payments,
        x,
        "V(x) <= C ||mu_N - mu(x)||^2 with the bare log-likelihood",
        value,
        game.loss_constant * m.family.squared_distance(m.used, m.remaining),
        "The same two outcomes as for the loss difference bound, on which the remark rests: V is of first "
        "order in the "
        "distance once training is regularised and evaluation is not.",
        {"lambda": m.family.reg},
    )


def _says_loss(case: Case, _: Applicability, held: Conclusion | None) -> str:
    c = case.game.loss_constant
    return (
        f"read losses with the regulariser that training adds: then C = {c:g} is the constant of a model "
        f"trained with "
        f"regularisation {1 / (2 * c):g}; bare losses may exceed the bound"
    )


STATEMENTS = (
    Statement(
        "unlearning-effectiveness",
        "Definition (Unlearning Effectiveness)",
        "def:fu_effective",
        Verdict.DEFINITION,
        "V >= 0 because the retrained model minimises F_N; evaluated for the exponential family over the "
        "game's clients.",
        Form("V(w) = F_N(w) - F_N(w^r) >= 0", always, _effectiveness),
    ),
    Statement(
        "global-stability",
        "Definition (Global Stability)",
        "def:fu_stab",
        Verdict.DEFINITION,
        "S >= 0 because the original model minimises F; evaluated for the exponential family over the "
        "game's clients.",
        Form("S(w) = F(w) - F(w^o) >= 0", always, _stability),
    ),
    Statement(
        "client-performance-change",
        "Definition (Client Performance Change)",
        "def:fu_local",
        Verdict.DEFINITION,
        "Q_i compares with the original model, so it is 0 there; elsewhere it may have either sign.",
        Form("Q_i(w) = f_i(w) - f_i(w^o), 0 at w = w^o", always, _change_at_original),
    ),
    Statement(
        "kernel-mean-embedding",
        "Definition (Kernel Mean Embedding) and the mixture embedding mu(x)",
        "eq:mixture_embedding",
        Verdict.DEFINITION,
        "inner products of mean embeddings are positive semidefinite, and mu(1) = mu_N.",
        Form("mu = E phi(z);  mu(x) = sum alpha_i x_i mu_i / sum alpha_i x_i", always, _embedding_slack),
    ),
    Statement(
        "loss-difference-bound",
        "Lemma (Loss Difference Bound via Kernel Mean Embeddings)",
        "lemma:loss_kernel_mean",
        Verdict.CORRECTED,
        "for the regularised objective J, J_2(w_1) - J_2(w_2) is the Bregman divergence of A + "
        "(lambda/2)||.||^2, which is "
        "(lambda + kappa)-strongly convex; the bare log-likelihood adds lambda <w_2, w_2 - w_1>, of first "
        "order.",
        Form(
            "|E_2[log P_w2 - log P_w1]| <= C ||mu_1 - mu_2||^2, C = 1 / (lambda + kappa)",
            always,
            _loss_bound_stated,
        ),
        Form(
            "J_2(w_1) - J_2(w_2) <= C ||mu_1 - mu_2||^2 with C = 1 / (2 (lambda + kappa)), J the "
            "regularised objective",
            always,
            _loss_bound_corrected,
        ),
        _loss_bound_counterexample,
        meaning=_says_loss,
    ),
    Statement(
        "metric-bounds",
        "Remark (Heterogeneity-Based Bounds for FU Metrics)",
        "lemma:loss_kernel_mean",
        Verdict.CORRECTED,
        "the loss difference bound applied to mu_N, mu_O and mu_i; it inherits the correction.",
        Form(
            "V <= C ||mu_N - mu(x)||^2, S <= C ||mu_O - mu(x)||^2, Q_i <= C d_i^2 + delta_i",
            always,
            _metric_bounds_stated,
        ),
        Form("the same three bounds, every loss with the regulariser of training", always, _metric_bounds),
        _metric_counterexample,
    ),
)

"""All equilibria, by following one number along one curve.

Fix the total participation ``S = s``. The profile that satisfies the equilibrium conditions up to a common
level t,

    d_k^2 - s w_k - t    <= 0 where y_k = 0,    = 0 where 0 < y_k < alpha_k,    >= 0 where y_k = alpha_k,

is the maximiser of a concave quadratic programme over ``sum y = s``, ``0 <= y <= alpha``, so its mean
embedding m is unique, and t is its multiplier in disguise. Equilibria are exactly the points where ``t(s) =
0``. At ``s = 1`` everybody takes part fully and t may be any number up to ``min_k g_k(alpha)``; from there
s is followed down to 0. As long as the same clients are inside (0, alpha_k) and the same ones at their
caps, y is a quadratic polynomial in s and ``s^2 t(s)`` a quartic, so both the end of the piece and the
zeros of t on it are roots of polynomials. Where nobody is inside, the curve ``(s, t)`` is vertical. It
comes from ``t = -inf`` and ends at ``t(0+) > 0``, the squared radius of the minimum enclosing ball of the
embeddings, so there is always a zero unless all embeddings coincide.

Below caps ``alpha_k`` is the most that is taken of client k, and the path begins at the sum of those. A sampling term adds
``a / (2 s)`` to t, and nothing to the path: ``s^2 t + a s / 2`` is a quartic as well, and tends to infinity beside ``s^2``.

That none is missing is checked on the way: the optimality conditions in the middle of every piece from the
inner products themselves, that t continues from piece to piece, and that the signs of t agree with the
zeros found.

=============  ==========================================================================================
curve          Path and Root: what was found
tracing        follow_path: units, room and ties around the compiled loop
_loop          the loop: solve the piece, next event, record zeros, change the sets
_piece         a piece's polynomials and checks; leave, enter, exchange; polishing a zero
_zeros         crossings, touches and flat stretches
_factor        the Cholesky factor of those inside
_polynomials   signs and roots of polynomials on an interval
=============  ==========================================================================================
"""

from .curve import Path, Root
from .tracing import follow_path, relevant_reluctance

__all__ = ["Path", "Root", "follow_path", "relevant_reluctance"]

"""The paper's statements, executable: hypotheses, conclusions, verdicts and counterexamples.

    >>> import stackfu as sf
    >>> sf.lemmas.ALL["participation-impact"].verdict.value
    'true after correction'

One object per statement. ``applies(game)`` gives the margin of each hypothesis, ``holds(game)`` the slack of
the conclusion, for the wording that is true or (``form="stated"``) for the paper's own. Where the paper's
wording fails, ``refute()`` builds the smallest counterexample known and recomputes the violated inequality;
from the command line that is

    python -m stackfu.lemmas quasiconvexity

:func:`report` evaluates all of them at one game.
"""

from .reporting import ALL, LemmaReport, Row, report
from .statement import Applicability, Case, Conclusion, Counterexample, Form, Statement, Verdict

__all__ = [
    "ALL",
    "Applicability",
    "Case",
    "Conclusion",
    "Counterexample",
    "Form",
    "LemmaReport",
    "Row",
    "Statement",
    "Verdict",
    "report",
]

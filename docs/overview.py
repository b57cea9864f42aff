"""Draw the picture of the README: ``python docs/overview.py`` writes ``docs/_static/overview.svg``."""

from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
mpl.rcParams["svg.hashsalt"] = "stackfu"  # the same file on every run
from matplotlib import pyplot as plt

import stackfu as sf
from stackfu.demo import digits_game

game = digits_game()
solution = game.solve(budget=0.05)
frontier = game.frontier([0.15 * (i / 14) ** 2 for i in range(1, 15)])
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
sf.plot.participation(solution, left)
left.set_title("Who takes part (area: price per unit)", fontsize="medium")
sf.plot.frontier(frontier, right, others=[game.solve(0.05, method=m) for m in ("haipo", "uniform")])
right.set_title("What a budget buys, and what none can", fontsize="medium")
target = Path(__file__).parent / "_static" / "overview.svg"
figure.patch.set_facecolor("white")
figure.savefig(target, metadata={"Date": None})

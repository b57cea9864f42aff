"""
From a CSV file to offers in five minutes
=========================================

Six hospitals share measurements of patients; Leeds asks to be forgotten. From the file to what is posted to each of the
others, and a page to explore. (Below this page it can be downloaded as a notebook, with what it printed and drew.)
"""

import csv
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import stackfu as sf
from stackfu.explorer import even_budgets, write_explorer

# %%
# The file has a row per patient, and a column with its hospital.

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(3)
centres = {
    "Leeds": (0, 0),
    "York": (1, 0),
    "Hull": (0, 1.5),
    "Ripon": (2, 1),
    "Selby": (1, 2),
    "Goole": (2, -1),
}
sizes = {"Leeds": 120, "York": 200, "Hull": 80, "Ripon": 60, "Selby": 150, "Goole": 40}
with (folder / "patients.csv").open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["hospital", "pressure", "pulse"])
    for name, centre in centres.items():
        for row in rng.normal(centre, 1.0, size=(sizes[name], 2)):
            writer.writerow([name, *row.round(3)])

# %%
# On the command line the next cell is ``stackfu embed patients.csv --client hospital --removed Leeds --cost-scale 1``. Names go
# with the clients through everything that follows.

with (folder / "patients.csv").open() as file:
    rows = list(csv.DictReader(file))
samples = {
    name: np.array([[float(row["pressure"]), float(row["pulse"])] for row in rows if row["hospital"] == name])
    for name in centres
}
emb = sf.MeanEmbeddings.from_samples(samples)
game = sf.StackelbergGame(emb, [len(sample) for sample in samples.values()], removed="Leeds", cost_scale=1.0)
print(game)
sf.plot.distance_map(game)

# %%
# The outcome without payments, and with a tenth of the price of full participation:

budget = 0.1 * game.full_participation_price
solution = game.solve(budget, gap=1e-3)
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
sf.plot.participation(game.equilibrium(), left)
sf.plot.participation(solution, right)

# %%
# What is posted and what each receives, and a check that shares no code with the search:

print(solution.verify().message)
solution

# %%
# The loss falls with the budget until more money stops helping; everything below the steps is proved out of reach.
# ``stackfu explore game.json`` writes the same numbers as one HTML page.

traced = game.frontier(even_budgets(3 * budget, 6), gap=1e-3)
sf.plot.frontier(traced)
write_explorer(traced, folder / "explorer.html", "Hospitals", compare=["haipo"])

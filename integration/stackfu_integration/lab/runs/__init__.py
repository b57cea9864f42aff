"""One run of an experiment: its source of data, what cells are made from, the game played, what is measured, the cells."""

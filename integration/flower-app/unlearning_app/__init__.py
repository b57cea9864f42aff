"""A Flower app with the unlearning mechanism; the same files serve simulation and deployment."""

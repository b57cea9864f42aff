"""The figures that the paper prints, as data: Tables 1 and 2 of Shao et al. (2024)."""

from __future__ import annotations

__all__ = ["METHODS", "MINUTES", "RETRAIN_ACCURACY", "TABLE_1"]

#: Methods of Table 1 in its order, without Retrain.
METHODS = ("uniform", "FedEraser", "MoDe", "QuickDrop", "Ours")

#: Retrain's V, S and worst Q by data set and beta, in percent.
RETRAIN_ACCURACY: dict[tuple[str, float], tuple[float, float, float]] = {
    ("ag-news", 0.2): (92.5, 95.0, -7.54),
    ("ag-news", 0.5): (87.7, 89.6, -11.05),
    ("ag-news", 0.8): (93.5, 91.5, -8.49),
    ("cifar100", 0.2): (50.37, 52.02, -9.62),
    ("cifar100", 0.5): (54.41, 54.36, -8.00),
    ("cifar100", 0.8): (54.89, 56.65, -5.00),
}

#: V, S and worst Q of the other methods, in points against Retrain.
TABLE_1: dict[tuple[str, float], dict[str, tuple[float, float, float]]] = {
    ("ag-news", 0.2): {
        "uniform": (1.65, -2.05, 5.54),
        "FedEraser": (0.0, 0.0, 0.0),
        "MoDe": (2.40, -7.22, 2.22),
        "QuickDrop": (-3.51, -13.26, -2.02),
        "Ours": (-1.92, -1.37, 5.98),
    },
    ("ag-news", 0.5): {
        "uniform": (5.45, 4.42, 9.05),
        "FedEraser": (0.0, 0.0, 0.0),
        "MoDe": (3.06, -6.61, 2.12),
        "QuickDrop": (-3.03, -13.15, -2.29),
        "Ours": (5.47, 4.10, 10.05),
    },
    ("ag-news", 0.8): {
        "uniform": (0.95, 2.81, 7.38),
        "FedEraser": (0.0, 0.0, 0.0),
        "MoDe": (1.93, -6.98, 2.20),
        "QuickDrop": (-2.99, -13.52, -2.00),
        "Ours": (1.14, 2.84, 7.68),
    },
    ("cifar100", 0.2): {
        "uniform": (4.00, 1.15, 5.56),
        "FedEraser": (0.0, 0.0, 0.0),
        "MoDe": (2.24, -5.49, 2.07),
        "QuickDrop": (-2.87, -13.17, -2.44),
        "Ours": (8.82, 6.23, 6.62),
    },
    ("cifar100", 0.5): {
        "uniform": (0.85, 0.86, 4.00),
        "FedEraser": (0.0, 0.0, 0.0),
        "MoDe": (1.32, -6.45, 2.19),
        "QuickDrop": (-2.74, -11.27, -2.26),
        "Ours": (1.66, 1.67, 5.75),
    },
    ("cifar100", 0.8): {
        "uniform": (-1.44, 0.38, 3.00),
        "FedEraser": (0.0, 0.0, 0.0),
        "MoDe": (2.51, -6.76, 2.06),
        "QuickDrop": (-2.41, -12.18, -2.21),
        "Ours": (2.85, 0.89, 4.00),
    },
}

#: Table 2: minutes of Retrain, FedEraser, MoDe, QuickDrop and the paper's mechanism.
MINUTES: dict[str, dict[str, float]] = {
    "cifar100": {"retrain": 11.5, "FedEraser": 4.6, "MoDe": 3.5, "QuickDrop": 2.3, "Ours": 8.2},
    "ag-news": {"retrain": 157.2, "FedEraser": 82.9, "MoDe": 47.2, "QuickDrop": 31.4, "Ours": 96.5},
}

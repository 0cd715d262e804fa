"""Training of the neural head; needs PyTorch (extra `head`), which nothing that serves imports."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from classifier.evaluate import Array

_UNITS = 16
_EPOCHS = 40
_BATCH = 256
_RATE = 2e-3
_DECAY = 0.05
_DROPOUT = 0.3


def train_head(inputs: Array, target: Array, weights: Array, seed: int) -> dict[str, object]:
    """Return the layers of a head with one hidden layer of 16 units: weighted least squares, AdamW (Loshchilov and Hutter 2019).

    `inputs` has a row per prompt, each number of about unit size; the same seed gives the same head on the same machine.
    Raises `ImportError` without PyTorch.
    """
    import torch
    from torch import nn

    threads = torch.get_num_threads()
    # On such small matrices, threads cost more than they give.
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            spread = float(target.std()) or 1.0
            rows = torch.tensor(inputs, dtype=torch.float32)
            wanted = torch.tensor(target / spread, dtype=torch.float32)
            counted = torch.tensor(weights, dtype=torch.float32)
            model = nn.Sequential(
                nn.Dropout(_DROPOUT),
                nn.Linear(rows.shape[1], _UNITS),
                nn.Tanh(),
                nn.Dropout(_DROPOUT),
                nn.Linear(_UNITS, 1),
            )
            optimiser = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=_DECAY)
            steps = _EPOCHS * -(-len(rows) // _BATCH)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
            for _ in range(_EPOCHS):
                for part in torch.randperm(len(rows)).split(_BATCH):
                    optimiser.zero_grad()
                    error = model(rows[part]).squeeze(1) - wanted[part]
                    (counted[part] * error * error).mean().backward()
                    optimiser.step()
                    schedule.step()
    finally:
        torch.set_num_threads(threads)
    first, last = model[1], model[4]
    return {
        "hidden": [_rounded(row) for row in first.weight.detach().numpy()],
        "hidden_bias": _rounded(first.bias.detach().numpy()),
        "weights": _rounded(last.weight.detach().numpy()[0] * spread),
        "bias": float(last.bias.detach().numpy()[0] * spread),
    }


def _rounded(values: NDArray[np.float32]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]

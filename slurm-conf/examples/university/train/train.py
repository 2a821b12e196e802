"""The loop of plain_train.py, elastic: `hp-submit --nodes 2:6 -- python train.py`, or by itself."""

from __future__ import annotations

import time

import torch
from charlm import CharTransformer, Windows, arguments, save
from torch.nn.functional import cross_entropy

from hpctools import elastic


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    data = Windows(args.text, args.context, count=args.steps * args.batch)
    model = CharTransformer(args.size, args.layers, args.context, args.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = elastic.Loader(model, optimizer, data, batch_size=args.batch, epochs=args.epochs, seed=args.seed)
    for _ in range(args.epochs):
        for inputs, targets in loader:
            time.sleep(args.delay * len(inputs))
            loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            if not loader.backward(loss):
                continue
            optimizer.step()
            optimizer.zero_grad()
            print(f"epoch {loader.epoch} step {loader.step} loss {loader.loss:.6f} world {loader.world_size}")
    if args.save:
        save(model, args.save)


if __name__ == "__main__":
    main()

"""The ordinary training loop, on one process: `python plain_train.py`. train.py is the same, made elastic."""

from __future__ import annotations

import time

import torch
from charlm import CharTransformer, Windows, arguments, save
from torch.nn.functional import cross_entropy


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    data = Windows(args.text, args.context, count=args.steps * args.batch)
    model = CharTransformer(args.size, args.layers, args.context, args.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(data, args.batch, shuffle=True)
    for _ in range(args.epochs):
        for inputs, targets in loader:
            time.sleep(args.delay * len(inputs))
            loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"loss {loss:.6f}")
    if args.save:
        save(model, args.save)


if __name__ == "__main__":
    main()

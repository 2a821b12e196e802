"""A small character-level transformer, and the text it reads: the licenses that come with every Debian."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from torch import nn

LICENSES = Path("/usr/share/common-licenses")


def arguments() -> argparse.Namespace:
    """The options of both training programs."""
    parser = argparse.ArgumentParser(description="Train a character-level transformer.")
    parser.add_argument("--text", type=Path, default=LICENSES, help="folder of text files")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100, help="global batches in an epoch")
    parser.add_argument("--batch", type=int, default=24, help="samples in a global batch")
    parser.add_argument("--size", type=int, default=64, help="width of the model; a multiple of 4")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=32, help="characters in a sample")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--delay", type=float, default=0.0, help="seconds to sleep per sample, where a GPU would compute"
    )
    parser.add_argument("--save", type=Path, help="write the trained weights to this file")
    return parser.parse_args()


class Windows(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """`count` windows of a text, evenly spread: `context` characters, and the same one further on."""

    def __init__(self, folder: Path, context: int, count: int) -> None:
        files = sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
        text = b"".join(path.read_bytes() for path in files)
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8).clamp(max=127)
        self.context = context
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * (len(self.text) - self.context - 1) // self.count
        window = self.text[start : start + self.context + 1].long()
        return window[:-1], window[1:]


class CharTransformer(nn.Module):
    """Predicts the next character: int64 (batch, context) to logits (batch, context, 128)."""

    def __init__(self, size: int, layers: int, context: int, dropout: float) -> None:
        super().__init__()
        self.characters = nn.Embedding(128, size)
        self.places = nn.Embedding(context, size)
        layer = nn.TransformerEncoderLayer(size, 4, 4 * size, dropout, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(size, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.characters(inputs) + self.places.weight
        return self.head(self.body(hidden, mask=self.mask, is_causal=True))


def save(model: nn.Module, path: Path) -> None:
    """Write the weights; every worker may do it, since all have the same and the file appears as a whole."""
    own = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    torch.save(model.state_dict(), own)
    own.replace(path)

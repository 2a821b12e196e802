"""Pure money: attribution and statement arithmetic in exact decimals."""

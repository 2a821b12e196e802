"""Pure money: bills, attribution and statements in exact decimals; no files, no network, no clock."""

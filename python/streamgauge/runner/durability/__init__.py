"""The durability experiments: doses, accounts and cuts (docs/durability.md)."""

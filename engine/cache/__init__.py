"""KV blocks: who holds them, how they are found again, where their bytes lie."""

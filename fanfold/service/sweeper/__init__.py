"""The nets under every message: what the sweeper does in a pass."""

"""Which runs are accepted: lanes, slots and estimates."""

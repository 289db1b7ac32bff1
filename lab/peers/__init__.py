"""Others that do the same work, set up on this machine to be measured in turn with ours. Their code is not here."""

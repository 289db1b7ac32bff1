"""What happens to a run next: the decision and everything it is made of."""

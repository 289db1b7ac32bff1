"""What the service says about itself: log lines and metrics."""

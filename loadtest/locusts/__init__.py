"""What Locust's users do; each module is a locustfile."""

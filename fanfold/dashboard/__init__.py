"""The deployed dashboard, looked at anywhere: its own page with CloudWatch's data, as text and as a picture."""

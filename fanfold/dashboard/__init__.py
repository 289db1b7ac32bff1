"""Shows the deployed dashboard with CloudWatch's data, as text and as a picture."""

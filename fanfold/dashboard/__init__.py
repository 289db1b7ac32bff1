"""The deployed dashboard, looked at anywhere: its own page, its data, its metric math, as a picture and as text."""

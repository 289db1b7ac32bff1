"""Text that comes in and goes out: documents as JSON values, and what others wrote made printable."""

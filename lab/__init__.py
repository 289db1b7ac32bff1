"""Evidence that is not part of the product: peers side by side, and the scale model."""

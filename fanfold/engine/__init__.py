"""The rules of a run: values in, values out. Standard library and jmespath only."""

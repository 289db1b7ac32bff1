"""The commands of `fanfold`, by what they are about."""

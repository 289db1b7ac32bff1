"""The local stack: the embedded emulator, and what is deployed into it."""

"""The tasks of this project: functions under a name that steps call."""

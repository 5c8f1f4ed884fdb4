"""What tests measured, for the summary at their end."""

figures: list[str] = []

"""Figures that tests measured, for the summary at the end."""

figures: list[str] = []

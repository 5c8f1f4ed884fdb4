"""`srdma bench targets`: measured values and ratios, and their goals."""

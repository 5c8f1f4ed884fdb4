"""`srdma bench targets`: ratios between measurements, and their goals."""

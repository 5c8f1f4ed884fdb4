"""Attacks on plain RoCE: RC QPs over SoftRoCE devices on a veth pair, in a virtual machine."""

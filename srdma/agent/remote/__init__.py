"""Programs of another computer: the control link between a host's proxy and a NIC's agent."""

"""srdma: secure reliable connections for RDMA, enforced by the NIC."""

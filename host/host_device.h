/* The addresses of a leg over verbs (docs/rdma.md): the worker's, and that of
 * the RDMA device of this machine that reaches it. */
#ifndef SRDMA_HOST_HOST_DEVICE_H
#define SRDMA_HOST_HOST_DEVICE_H

#include <sys/socket.h>

#define SRDMA_HOST_DEVICES "/sys/class/infiniband"

struct srdma_host_route {
	struct sockaddr_storage peer; /* of the worker */
	struct sockaddr_storage own;  /* port 0 */
};

/*
 * Finds route->own for route->peer. A link-local peer gets the network interface
 * by which it is reached. device: name of an RDMA device; NULL or "": that of
 * the kernel's route. root: folder of the devices, SRDMA_HOST_DEVICES.
 * Errors, with a text: -ENODEV: no such device, or the peer is link-local and
 * not exactly one network interface could reach it; -EADDRNOTAVAIL: the device
 * has no address of the peer's family; without a device, an -errno of the
 * kernel's route, such as -ENETUNREACH.
 */
int srdma_host_device_route(struct srdma_host_route *route, const char *root,
			    const char *device);

#endif

#include "port/verbs/port_verbs_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { WINDOW = 64, RECEIVES = 512, SENDS = 256, LEAST = 32 };

static void port_destroy(struct srdma_port *base);

static int port_fd(struct srdma_port *base)
{
	return ((struct srdma_verbs_port *)base)->epoll;
}

static const struct srdma_port_ops wire_ops = {
	.poll = srdma_verbs_data_poll,
	.reserve = srdma_verbs_data_reserve,
	.commit = srdma_verbs_data_commit,
	.flush = srdma_verbs_data_flush,
	.buf_get = srdma_verbs_buf_get,
	.buf_put = srdma_verbs_buf_put,
	.buf_free = srdma_verbs_buf_free,
	.connect = srdma_verbs_cm_connect,
	.close = srdma_verbs_conn_close,
	.fd = port_fd,
	.arm = srdma_verbs_cq_arm,
	.disarm = srdma_verbs_cq_disarm,
	.destroy = port_destroy,
};

static const struct srdma_port_ops host_ops = {
	.poll = srdma_verbs_data_poll,
	.flush = srdma_verbs_data_flush,
	.buf_get = srdma_verbs_buf_get,
	.buf_put = srdma_verbs_buf_put,
	.buf_free = srdma_verbs_buf_free,
	.read = srdma_verbs_leg_read,
	.write = srdma_verbs_leg_write,
	.atomic = srdma_verbs_leg_atomic,
	.complete = srdma_verbs_leg_complete,
	.keepalive = srdma_verbs_beat_keepalive,
	.leg_open = srdma_verbs_leg_open,
	.region_open = srdma_verbs_leg_region_open,
	.region_close = srdma_verbs_leg_region_close,
	.close = srdma_verbs_conn_close,
	.fd = port_fd,
	.arm = srdma_verbs_cq_arm,
	.disarm = srdma_verbs_cq_disarm,
	.destroy = port_destroy,
};

int srdma_verbs_refuse(struct srdma_verbs_port *port, int err, const char *fmt,
		       ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(port->why, sizeof(port->why), fmt, args);
	va_end(args);
	port->base.why = port->why;
	return err;
}

/* --- bring-up ------------------------------------------------------- */

static int device_open(struct srdma_verbs_port *port, const char *name)
{
	struct ibv_device **list;
	int i, n = 0, err = -ENODEV;

	list = ibv_get_device_list(&n);
	if (!list)
		return srdma_verbs_refuse(port, -errno,
					  "this host has no RDMA devices: %s",
					  strerror(errno));
	for (i = 0; i < n; ++i) {
		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		port->context = ibv_open_device(list[i]);
		err = port->context ? 0 : -errno;
		break;
	}
	ibv_free_device_list(list);
	if (err == -ENODEV)
		return srdma_verbs_refuse(port, err,
					  "no RDMA device %.64s (%d here; "
					  "`rdma link` lists them)",
					  name, n);
	if (err)
		return srdma_verbs_refuse(port, err, "opening %.64s: %s", name,
					  strerror(-err));
	err = ibv_query_device(port->context, &port->limits);
	return err ? -err : 0;
}

/* Make fd non-blocking and add it to the port's epoll set. */
static int watch(struct srdma_verbs_port *port, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ||
	    epoll_ctl(port->epoll, EPOLL_CTL_ADD, fd, &event))
		return -errno;
	return 0;
}

static int channels_open(struct srdma_verbs_port *port)
{
	int err;

	port->epoll = epoll_create1(EPOLL_CLOEXEC);
	port->channel = ibv_create_comp_channel(port->context);
	port->cm = rdma_create_event_channel();
	port->pd = ibv_alloc_pd(port->context);
	if (port->epoll < 0 || !port->channel || !port->cm || !port->pd)
		return srdma_verbs_refuse(port, errno ? -errno : -ENOMEM,
					  "setting up the device: %s",
					  strerror(errno));
	err = watch(port, port->channel->fd);
	if (!err)
		err = watch(port, port->cm->fd);
	if (!err)
		err = watch(port, port->context->async_fd);
	return err;
}

static void port_prepare(struct srdma_verbs_port *port,
			 const struct srdma_port_verbs_params *p)
{
	int wire = p->kind == SRDMA_PORT_VERBS_WIRE;

	port->base.ops = wire ? &wire_ops : &host_ops;
	port->base.kind = SRDMA_PORT_VERBS;
	port->base.window = WINDOW;
	port->kind = p->kind;
	port->epoll = -1;
	port->receives = p->receives ? p->receives : RECEIVES;
	port->sends = p->sends ? p->sends : SENDS;
	port->conn_max = wire ? SRDMA_VERBS_WIRES : SRDMA_VERBS_LEGS;
	TAILQ_INIT(&port->ready);
	TAILQ_INIT(&port->dirty);
	TAILQ_INIT(&port->ending);
	TAILQ_INIT(&port->half);
	LIST_INIT(&port->orphans);
}

static int port_open(struct srdma_verbs_port *port,
		     const struct srdma_port_verbs_params *p)
{
	int err;

	if ((port->sends & (port->sends - 1)) || port->sends < LEAST ||
	    port->receives < LEAST || !p->buffers)
		return srdma_verbs_refuse(
			port, -EINVAL,
			"send queue of %u, receive queue of %u, %u "
			"buffers: queues need at least 32 entries, the "
			"send queue a power of two, and the port a buffer",
			port->sends, port->receives, p->buffers);
	err = device_open(port, p->device);
	if (!err)
		err = channels_open(port);
	if (!err)
		err = srdma_verbs_slab_create(&port->pool, port, p->buffers,
					      SRDMA_VERBS_STRIDE, 0);
	if (err)
		return err;
	srdma_verbs_pool_fill(port, p->buffers);
	return srdma_verbs_cm_listen(port, p->listen);
}

int srdma_port_verbs_create(struct srdma_port **out,
			    const struct srdma_port_verbs_params *p)
{
	struct srdma_verbs_port *port = calloc(1, sizeof(*port));
	int err;

	if (!port)
		return -ENOMEM;
	port_prepare(port, p);
	err = port_open(port, p);
	if (err) {
		if (p->why)
			snprintf(p->why, SRDMA_PORT_VERBS_WHY_LEN, "%s",
				 port->base.why ? port->why : strerror(-err));
		port_destroy(&port->base);
		return err;
	}
	*out = &port->base;
	return 0;
}

static void port_destroy(struct srdma_port *base)
{
	struct srdma_verbs_port *port = (struct srdma_verbs_port *)base;
	struct srdma_verbs_slab *slab;
	uint32_t i;

	for (i = 0; i < port->conn_max; ++i)
		if (port->conns[i])
			srdma_verbs_conn_close(&port->conns[i]->base);
	if (port->listener)
		rdma_destroy_id(port->listener);
	while ((slab = LIST_FIRST(&port->orphans))) {
		LIST_REMOVE(slab, link);
		srdma_verbs_slab_destroy(slab);
	}
	srdma_verbs_slab_destroy(port->pool);
	srdma_verbs_cq_destroy(port);
	if (port->pd)
		ibv_dealloc_pd(port->pd);
	if (port->channel)
		ibv_destroy_comp_channel(port->channel);
	if (port->cm)
		rdma_destroy_event_channel(port->cm);
	if (port->epoll >= 0)
		close(port->epoll);
	if (port->context)
		ibv_close_device(port->context);
	free(port);
}

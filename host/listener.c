#include "srdma/connection.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/error.h"
#include "host/lasting_channel.h"
#include "host/objects.h"
#include "host/settings.h"

enum { BACKLOG = 512 };

struct srdma_listener {
	struct srdma_device *device;
	struct srdma_lasting_channel *channel;
	uint16_t port;
};

/* --- the TCP socket ------------------------------------------------------ */

/* IPV6_V6ONLY has an effect on the address :: only. It is cleared because its
 * default is a setting of the system. */
static int listen_at(const struct sockaddr *address, socklen_t len)
{
	const int one = 1, zero = 0;
	int r, fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (address->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (!bind(fd, address, len) && !listen(fd, BACKLOG))
		return fd;
	r = -errno;
	close(fd);
	return r;
}

/* Listens at every address: by IPv6, which accepts IPv4 too, or by IPv4 where
 * the kernel has no IPv6. */
static int listen_everywhere(uint16_t port)
{
	const struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
					 .sin6_port = htons(port),
					 .sin6_addr = IN6ADDR_ANY_INIT };
	const struct sockaddr_in v4 = { .sin_family = AF_INET,
					.sin_port = htons(port) };
	int fd = listen_at((const struct sockaddr *)&v6, sizeof(v6));

	return fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL
		       ? listen_at((const struct sockaddr *)&v4, sizeof(v4))
		       : fd;
}

static int name_error(const char *host, int error)
{
	const int rc = error == EAI_AGAIN    ? -EAGAIN
		       : error == EAI_MEMORY ? -ENOMEM
		       : error == EAI_SYSTEM ? -errno
					     : -EINVAL;

	return srdma_error_set(rc, "%.200s: no address of this name: %s", host,
			       error == EAI_SYSTEM ? strerror(-rc)
						   : gai_strerror(error));
}

/* Listens at the first address of the host. */
static int listen_by_name(const char *host, uint16_t port)
{
	const struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICSERV,
					.ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	char service[8];
	int r;

	snprintf(service, sizeof(service), "%u", port);
	r = getaddrinfo(host, service, &hints, &found);
	if (r)
		return name_error(host, r);
	r = listen_at(found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return r >= 0 ? r
		      : srdma_error_set(r, "cannot listen at %.200s:%u: %s",
					host, port, strerror(-r));
}

/* Returns a listening socket, or -errno with an error text. */
static int listen_tcp(const char *host, uint16_t port)
{
	int r;

	if (host)
		return listen_by_name(host, port);
	r = listen_everywhere(port);
	return r >= 0 ? r
		      : srdma_error_set(r, "cannot listen at port %u: %s", port,
					strerror(-r));
}

static uint16_t port_of(int fd)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);

	memset(&name, 0, sizeof(name));
	getsockname(fd, (struct sockaddr *)&name, &len);
	if (name.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&name)->sin6_port);
	return ntohs(((struct sockaddr_in *)&name)->sin_port);
}

/* --- the channel --------------------------------------------------------- */

/* Waits for an event of this name. Others, `refused`, are for the agent's
 * log. */
static int wait_event(struct srdma_listener *l, const char *name,
		      struct srdma_agent_event *e, int64_t deadline)
{
	int r;

	for (;;) {
		r = srdma_lasting_next(l->channel, e, deadline);
		if (!r && !strcmp(e->event, "error"))
			r = srdma_channel_error(e);
		if (r || !strcmp(e->event, name))
			return r;
		if (srdma_socket_late(deadline))
			return -ETIMEDOUT;
	}
}

/* The agent listens at an address of its own: another one has to use the same
 * port. */
static int keep_port(struct srdma_listener *l,
		     const struct srdma_listener_attr *attr,
		     struct srdma_settings_address at, uint16_t port)
{
	struct srdma_message again = { 0 };
	int r;

	if (!port)
		return srdma_channel_illegal();
	l->port = at.port = port;
	r = srdma_settings_listener(&again, attr, &at);
	if (r)
		srdma_message_free(&again);
	else
		srdma_lasting_again(l->channel, &again);
	return r;
}

/* Passes the socket, which is owned from now on, to the agent; at: or lets it
 * listen there. */
static int start(struct srdma_listener *l, int fd,
		 const struct srdma_listener_attr *attr,
		 const struct srdma_settings_address *at)
{
	const int64_t deadline =
		srdma_socket_deadline(SRDMA_CHANNEL_TIMEOUT_MS);
	struct srdma_message first = { 0 }, again = { 0 };
	const struct srdma_lasting_params params = {
		.agent = &l->device->agent,
		.confirms = "listening",
		.first = &first,
		.again = &again,
		.fd = fd,
	};
	struct srdma_agent_event e;
	int r = srdma_settings_listener(&first, attr, at);

	if (!r)
		r = srdma_settings_listener(&again, attr, at);
	if (r && fd >= 0)
		close(fd);
	if (!r)
		r = srdma_lasting_open(&l->channel, &params);
	srdma_message_free(&first);
	srdma_message_free(&again);
	if (r)
		return r;
	do
		r = wait_event(l, "listening", &e, deadline);
	while (r == -EINTR);
	if (r == -ETIMEDOUT && !srdma_lasting_over(l->channel))
		srdma_error_set(r, "the agent did not listen in %d ms",
				SRDMA_CHANNEL_TIMEOUT_MS);
	return r || !at ? r : keep_port(l, attr, *at, e.port);
}

int srdma_listen(struct srdma_listener **listener, struct srdma_device *device,
		 const char *host, uint16_t port,
		 const struct srdma_listener_attr *attr)
{
	const struct srdma_settings_address at = { host, port };
	struct srdma_listener *l;
	int r, fd = -1;

	*listener = NULL;
	if (!device->remote)
		fd = listen_tcp(host, port);
	if (!device->remote && fd < 0)
		return fd;
	l = calloc(1, sizeof(*l));
	if (!l) {
		if (fd >= 0)
			close(fd);
		return srdma_error_set(-ENOMEM, "no memory");
	}
	l->device = device;
	l->port = fd >= 0 ? port_of(fd) : 0;
	/* Before the I/O: srdma_close_device() of another thread must fail. */
	atomic_fetch_add(&device->users, 1);
	r = start(l, fd, attr, device->remote ? &at : NULL);
	if (r) {
		atomic_fetch_sub(&device->users, 1);
		srdma_lasting_close(l->channel);
		free(l);
		return r;
	}
	*listener = l;
	return 0;
}

uint16_t srdma_listener_port(const struct srdma_listener *l)
{
	return l->port;
}

int srdma_listener_fd(const struct srdma_listener *l)
{
	return srdma_lasting_fd(l->channel);
}

void srdma_close_listener(struct srdma_listener *l)
{
	if (!l)
		return;
	srdma_lasting_close(l->channel);
	atomic_fetch_sub(&l->device->users, 1);
	free(l);
}

int srdma_get_request(struct srdma_listener *l, struct srdma_request *request,
		      int timeout_ms)
{
	struct srdma_agent_event e;
	int r = wait_event(l, "arrived", &e, srdma_socket_deadline(timeout_ms));

	if (r == -ETIMEDOUT && !srdma_lasting_over(l->channel))
		return srdma_error_set(r, "no peer came in %d ms", timeout_ms);
	if (r)
		return r == -EINTR ? srdma_error_set(r, "a signal") : r;
	if (!e.has_arrival || !*e.peer.identity)
		return srdma_channel_illegal();
	request->arrival = e.arrival;
	strcpy(request->identity, e.peer.identity);
	return 0;
}

#include "host/host_device.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/addr.h"
#include "host/error.h"

enum { GIDS = 64, LINE = 128, NAMES = 200 };

struct gid {
	struct in6_addr ip; /* IPv4: mapped */
	char netdev[IF_NAMESIZE];
};

/* The GIDs that can reach the peer. */
struct table {
	const struct srdma_host_route *route;
	struct gid gids[GIDS];
	int n;
};

/* --- addresses ----------------------------------------------------------- */

static struct sockaddr_in6 *six_of(struct sockaddr_storage *address)
{
	return (struct sockaddr_in6 *)address;
}

static int reaches(const struct in6_addr *gid,
		   const struct sockaddr_storage *peer)
{
	if (peer->ss_family == AF_INET)
		return IN6_IS_ADDR_V4MAPPED(gid);
	return !IN6_IS_ADDR_V4MAPPED(gid) && !IN6_IS_ADDR_UNSPECIFIED(gid) &&
	       !IN6_IS_ADDR_LINKLOCAL(gid) == !srdma_addr_is_link_local(peer);
}

static void set_address(struct sockaddr_storage *out, const struct gid *gid,
			int link_local)
{
	srdma_addr_of_gid(out, &gid->ip);
	if (link_local)
		six_of(out)->sin6_scope_id = if_nametoindex(gid->netdev);
}

/* The source of the kernel's route to the peer, over netdev if it is not NULL.
 * Connecting a UDP socket sends nothing. 0 or -errno. */
static int source_of(struct sockaddr_storage *own, const char *netdev,
		     const struct sockaddr_storage *peer)
{
	const int fd = socket(peer->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*own);
	int r = 0;

	if (fd < 0)
		return -errno;
	if ((netdev && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, netdev,
				  (socklen_t)strlen(netdev))) ||
	    connect(fd, (const struct sockaddr *)peer, len) ||
	    getsockname(fd, (struct sockaddr *)own, &len))
		r = -errno;
	close(fd);
	if (!r)
		srdma_addr_set_port(own, 0);
	return r;
}

/* --- devices ------------------------------------------------------------- */

/* Reads the first line of the file. 0 or -1. */
__attribute__((format(printf, 2, 3))) static int
read_line(char line[LINE], const char *format, ...)
{
	char path[PATH_MAX];
	va_list args;
	ssize_t n;
	int fd;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, line, LINE - 1);
	close(fd);
	line[n > 0 ? n : 0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	return n > 0 ? 0 : -1;
}

/* Adds GID number i of a port, whose folder is given. Entries without an
 * address have no type. Returns 0 behind the last one. */
static int add_gid(struct table *t, const char *port, int i)
{
	struct gid *gid = &t->gids[t->n];
	char line[LINE];

	if (t->n == GIDS || read_line(line, "%s/gids/%d", port, i))
		return 0;
	if (inet_pton(AF_INET6, line, &gid->ip) != 1 ||
	    !reaches(&gid->ip, &t->route->peer) ||
	    read_line(line, "%s/gid_attrs/types/%d", port, i) ||
	    strcmp(line, "RoCE v2") != 0 ||
	    read_line(line, "%s/gid_attrs/ndevs/%d", port, i))
		return 1;
	snprintf(gid->netdev, sizeof(gid->netdev), "%.*s", IF_NAMESIZE - 1,
		 line);
	t->n++;
	return 1;
}

static void add_device(struct table *t, const char *root, const char *device)
{
	char port[PATH_MAX];

	for (int p = 1, found = 1; found; p++) {
		snprintf(port, sizeof(port), "%s/%s/ports/%d", root, device, p);
		found = !access(port, F_OK);
		for (int i = 0; found && add_gid(t, port, i); i++)
			;
	}
}

static int is_name(const char *entry)
{
	return *entry != '.' && !strchr(entry, '/');
}

/* Adds all devices, and lists their names. */
static void add_all(struct table *t, const char *root, char names[NAMES])
{
	DIR *folder = opendir(root);
	const struct dirent *entry;
	size_t len = 0;

	*names = '\0';
	while (folder && (entry = readdir(folder))) {
		if (!is_name(entry->d_name))
			continue;
		add_device(t, root, entry->d_name);
		len += (size_t)snprintf(names + len, NAMES - len, "%s%s",
					len ? ", " : "", entry->d_name);
		if (len >= NAMES)
			len = NAMES - 1;
	}
	if (folder)
		closedir(folder);
}

/* --- routes -------------------------------------------------------------- */

static int no_route(const struct srdma_host_route *route, int r)
{
	char peer[SRDMA_NAME_LEN];

	srdma_addr_format(peer, (const struct sockaddr *)&route->peer);
	return srdma_error_set(r, "no route to the worker's leg at %s: %s",
			       peer, strerror(-r));
}

/* The one network interface that has a link-local address of RDMA. */
static int add_scope(struct srdma_host_route *route, const char *root)
{
	struct table t = { .route = route };
	char names[NAMES];
	int others = 0;

	add_all(&t, root, names);
	for (int i = 1; i < t.n; i++)
		others += !!strcmp(t.gids[0].netdev, t.gids[i].netdev);
	if (!t.n || others)
		return srdma_error_set(
			-ENODEV,
			"the worker's leg has a link-local address, and %s "
			"interface has one with RDMA here: name the RDMA "
			"device by SRDMA_HOST_DEVICE",
			t.n ? "more than one" : "no");
	six_of(&route->peer)->sin6_scope_id = if_nametoindex(t.gids[0].netdev);
	return 0;
}

static int from_kernel(struct srdma_host_route *route, const char *root)
{
	int r = srdma_addr_is_link_local(&route->peer) ? add_scope(route, root)
						       : 0;

	if (r)
		return r;
	r = source_of(&route->own, NULL, &route->peer);
	return r ? no_route(route, r) : 0;
}

static int unknown(const char *root, const char *device)
{
	static const struct srdma_host_route none;
	struct table t = { .route = &none };
	char names[NAMES];

	add_all(&t, root, names);
	return srdma_error_set(-ENODEV,
			       "SRDMA_HOST_DEVICE: %.64s is no RDMA device of "
			       "this machine, which has %s",
			       device, *names ? names : "none");
}

/* The source of a route over the device; without such a route, an address that
 * rdma_cm refuses with a reason. */
static void choose(struct srdma_host_route *route, const struct table *t)
{
	struct sockaddr_storage source, own;

	set_address(&route->own, &t->gids[0],
		    srdma_addr_is_link_local(&route->peer));
	if (srdma_addr_is_link_local(&route->peer)) {
		six_of(&route->peer)->sin6_scope_id =
			six_of(&route->own)->sin6_scope_id;
		return;
	}
	for (int i = 0; i < t->n; i++) {
		if (source_of(&source, t->gids[i].netdev, &route->peer))
			continue;
		for (int k = 0; k < t->n; k++) {
			set_address(&own, &t->gids[k], 0);
			if (srdma_addr_same_ip((struct sockaddr *)&own,
					       (struct sockaddr *)&source)) {
				route->own = own;
				return;
			}
		}
	}
}

static int from_device(struct srdma_host_route *route, const char *root,
		       const char *device)
{
	struct table t = { .route = route };
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", root, device);
	if (!is_name(device) || access(path, F_OK))
		return unknown(root, device);
	add_device(&t, root, device);
	if (!t.n)
		return srdma_error_set(
			-EADDRNOTAVAIL,
			"SRDMA_HOST_DEVICE: %.64s has no %sIPv%d address: "
			"assign one to its interface, or name another device",
			device,
			srdma_addr_is_link_local(&route->peer) ? "link-local "
							       : "",
			route->peer.ss_family == AF_INET6 ? 6 : 4);
	choose(route, &t);
	return 0;
}

int srdma_host_device_route(struct srdma_host_route *route, const char *root,
			    const char *device)
{
	return device && *device ? from_device(route, root, device)
				 : from_kernel(route, root);
}

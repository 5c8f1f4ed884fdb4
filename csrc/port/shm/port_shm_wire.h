/* The shared-memory wire port, shared by data path, bring-up and names. */
#ifndef SRDMA_PORT_SHM_WIRE_H
#define SRDMA_PORT_SHM_WIRE_H

#include <sys/types.h>

#include "port/shm/port_shm_impl.h"

enum srdma_shm_link_state {
	SRDMA_SHM_HELLO_WANTED,	 /* accepted; not reported to the relay */
	SRDMA_SHM_ANSWER_WANTED, /* connecting */
	SRDMA_SHM_UP,
};

/* A wire connection to another worker. */
struct srdma_shm_link {
	struct srdma_shm_conn c;
	enum srdma_shm_link_state state;
	int sock;
	int refs;
	uint64_t born; /* serial number, to find the oldest handshake */
	bool sock_due; /* sock became ready */
	bool dirty;    /* committed, not flushed */
	char peer[SRDMA_NAME_LEN]; /* peer name passed to connect(); "" if
				      accepted */
	uint32_t last; /* length of the last packet sent; predicts the next */
	/*
	 * Packets are built here and copied to the ring: a peer that changes a
	 * packet while it is being sealed must not get a valid tag for the
	 * change.
	 */
	uint8_t staging[SRDMA_SHM_WIRE_SIZE];
};

/* The socket DIR/NAME.sock of this worker. */
struct srdma_shm_name {
	int sock;
	char path[108];
	dev_t dev;
	ino_t ino;
};

struct srdma_shm_wire {
	struct srdma_shm_port p;
	struct srdma_shm_name name;
	char dir[108];
	uint32_t slots;
	uint32_t pending;   /* connections in SRDMA_SHM_HELLO_WANTED */
	uint32_t unsettled; /* connections not in SRDMA_SHM_UP */
	uint64_t born;
	bool listener_due;   /* accept until the backlog is empty */
	bool listener_waits; /* for a file descriptor */
	bool dirty;	     /* some connection has committed datagrams */
};

static inline struct srdma_shm_wire *srdma_shm_wire_of(struct srdma_port *port)
{
	return (struct srdma_shm_wire *)port;
}

static inline struct srdma_shm_link *srdma_shm_link_of(struct srdma_shm_conn *c)
{
	return (struct srdma_shm_link *)c;
}

/* --- port_shm_name.c -------------------------------------------------- */

/*
 * Store DIR/NAME.sock in path. Returns 0, -EINVAL (bad name) or -ENAMETOOLONG.
 */
int srdma_shm_name_path(char path[108], const char *dir, const char *name);

/* Bind and listen; see srdma_port_shm_create_wire(). Returns 0 or -errno. */
int srdma_shm_name_claim(struct srdma_shm_name *n, const char *dir,
			 const char *name);
/* Unlink the path, if it is still ours, and close the socket. */
void srdma_shm_name_release(struct srdma_shm_name *n);

/*
 * Returns a non-blocking socket connected to path, owned by the caller, or
 * -errno.
 */
int srdma_shm_name_dial(const char *path);

/* 1 if the process at the other end of sock runs as this user or as root. */
bool srdma_shm_name_trusted(int sock);

/* --- port_shm_hello.c ------------------------------------------------- */

enum { SRDMA_SHM_HELLO_FDS = 3, SRDMA_SHM_ANSWER_FDS = 2 };

/* The hello message that each side of a new connection sends once. */
struct srdma_shm_hello {
	char name[SRDMA_NAME_LEN];
	uint32_t slots;
	int fds[SRDMA_SHM_HELLO_FDS];
	int nfds;
};

/* Returns 0 or -errno. */
int srdma_shm_hello_send(int sock, const struct srdma_shm_hello *hello);

/*
 * close_file closes descriptors that are too many. Returns 0 with descriptors
 * that the caller closes. On -EAGAIN, -ECONNRESET or -EPROTO there is nothing to
 * close.
 */
int srdma_shm_hello_receive(int sock, struct srdma_shm_hello *hello,
			    void (*close_file)(int fd));
void srdma_shm_hello_close(struct srdma_shm_hello *hello,
			   void (*close_file)(int fd));

/* --- port_shm_link.c -------------------------------------------------- */

/*
 * Process events of sockets: hellos, responses, disconnects, new connections.
 */
void srdma_shm_wire_look(struct srdma_shm_wire *w);

int srdma_shm_link_connect(struct srdma_port *port, const char *address,
			   struct srdma_conn **conn);
void srdma_shm_link_close(struct srdma_conn *conn);
void srdma_shm_link_free(struct srdma_shm_link *link);

#endif

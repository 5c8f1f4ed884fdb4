/* The shared-memory wire port, between data path, bring-up and names. */
#ifndef SRDMA_PORT_SHM_WIRE_H
#define SRDMA_PORT_SHM_WIRE_H

#include <sys/types.h>

#include "port/shm/port_shm_impl.h"

enum srdma_shm_link_state {
	SRDMA_SHM_HELLO_WANTED,	 /* accepted; the relay knows nothing of it */
	SRDMA_SHM_ANSWER_WANTED, /* connecting */
	SRDMA_SHM_UP,
};

/* A connection to another worker. */
struct srdma_shm_link {
	struct srdma_shm_conn c;
	enum srdma_shm_link_state state;
	int sock;
	int refs;
	uint64_t born; /* serial number: which handshake is the oldest */
	bool sock_due; /* something happened to sock */
	bool dirty;    /* committed, not flushed */
	char peer[SRDMA_NAME_LEN]; /* connected: whom we asked for; else "" */
	uint32_t last; /* bytes of the packet sent last: a guess at the next */
	/*
	 * Packets are made here and copied: a peer that changes a packet
	 * while it is being sealed must not get a tag for that.
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
	uint32_t pending;   /* links in SRDMA_SHM_HELLO_WANTED */
	uint32_t unsettled; /* links not SRDMA_SHM_UP */
	uint64_t born;
	bool listener_due; /* accept until there is none */
	bool dirty;	   /* some link is */
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

/* DIR/NAME.sock into path. 0, -EINVAL (bad name), -ENAMETOOLONG. */
int srdma_shm_name_path(char path[108], const char *dir, const char *name);

/* Bind and listen; see srdma_port_shm_create_wire(). */
int srdma_shm_name_claim(struct srdma_shm_name *n, const char *dir,
			 const char *name);
/* Unlink and close. */
void srdma_shm_name_release(struct srdma_shm_name *n);

/* A socket connected to path, non-blocking, or -errno. */
int srdma_shm_name_dial(const char *path);

/* The other end of sock runs as this user or root. */
bool srdma_shm_name_trusted(int sock);

/* --- port_shm_hello.c ------------------------------------------------- */

enum { SRDMA_SHM_HELLO_FDS = 3, SRDMA_SHM_ANSWER_FDS = 2 };

/* The one message that each side of a new connection sends. */
struct srdma_shm_hello {
	char name[SRDMA_NAME_LEN];
	uint32_t slots;
	int fds[SRDMA_SHM_HELLO_FDS];
	int nfds;
};

/* 0 or -errno. */
int srdma_shm_hello_send(int sock, const struct srdma_shm_hello *hello);

/*
 * Returns 0, with descriptors to be closed by srdma_shm_hello_close(), else
 * -EAGAIN, -ECONNRESET, or -EPROTO, and nothing is left to close.
 */
int srdma_shm_hello_receive(int sock, struct srdma_shm_hello *hello);
void srdma_shm_hello_close(struct srdma_shm_hello *hello);

/* --- port_shm_link.c -------------------------------------------------- */

/* Take what happened to sockets: hellos, answers, ends, new connections. */
void srdma_shm_wire_look(struct srdma_shm_wire *w);

int srdma_shm_link_connect(struct srdma_port *port, const char *address,
			   struct srdma_conn **conn);
void srdma_shm_link_close(struct srdma_conn *conn);
void srdma_shm_link_free(struct srdma_shm_link *link);

#endif

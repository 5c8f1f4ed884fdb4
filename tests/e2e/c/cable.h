/*
 * A link between two workers that passes through this process. A cable takes
 * frames from one side and gives them to the other; meddle.h changes them in
 * between. The code trusts both sides, because only tests use it.
 */
#ifndef CABLE_H
#define CABLE_H

#include <stdint.h>

enum { LEFT, RIGHT, SIDES };
enum { FRAME_MAX = 9216 };

/* Bytes in the cable's memory, valid during the sink's call. */
struct frame {
	uint8_t *data;
	uint32_t len;
	/*
	 * at: position of the srdma packet. packet: its length; 0: the frame
	 * has none.
	 */
	uint32_t at, packet;
	int side;      /* side that sent it */
	uint32_t link; /* cable_shm: index of the connection */
};

struct cable;
typedef void cable_sink(void *arg, struct frame *frame);

struct cable_ops {
	/*
	 * Passes pending frames of both sides to the sink. Returns 0 if there
	 * were none.
	 */
	int (*take)(struct cable *c, cable_sink *sink, void *arg);
	/*
	 * Queues the frame for the side opposite to frame->side, until the next
	 * flush.
	 */
	void (*give)(struct cable *c, const struct frame *frame);
	void (*flush)(struct cable *c);
	/* Corrects the checksum, if there is one. */
	void (*mend)(struct frame *frame);
	/*
	 * Closes all connections; workers may reconnect. Returns how many it
	 * closed. NULL: the cable has no connections.
	 */
	int (*cut)(struct cable *c);
	/* Call before sleeping on the fds. Returns 1 if there is work. */
	int (*arm)(struct cable *c);
	void (*disarm)(struct cable *c);
	void (*destroy)(struct cable *c);
};

struct cable {
	const struct cable_ops *ops;
	int fds[SIDES];
};

/*
 * Connects worker names[LEFT] in directory dirs[LEFT] with names[RIGHT] in
 * dirs[RIGHT]. The cable takes the other worker's name in each directory, so
 * that a worker connects to the cable in its place.
 */
struct cable *cable_shm_create(const char *const dirs[SIDES],
			       const char *const names[SIDES]);
/* Connects two network devices. The packets are RoCEv2 over IPv4. */
struct cable *cable_net_create(const char *const devices[SIDES]);
/*
 * Connects two virtual machines, whose Ethernet frames are UDP datagrams on
 * 127.0.0.1: received at ports[side][0] from the machine at ports[side][1].
 */
struct cable *cable_vms_create(const char *const ports[SIDES][2]);

/* Prints to stderr and exits with status 1. */
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif

/*
 * What joins two workers, when it passes through this process. A cable takes
 * frames from either side and gives them to the other; what happens in
 * between is meddle.h. It trusts both sides: it is a test's.
 */
#ifndef CABLE_H
#define CABLE_H

#include <stdint.h>

enum { LEFT, RIGHT, SIDES };
enum { FRAME_MAX = 9216 };

/* Bytes of the cable, valid during the call that brings them. */
struct frame {
	uint8_t *data;
	uint32_t len;
	uint32_t at, packet; /* where a packet of srdma lies; packet 0: none */
	int side;	     /* whence it came */
	uint32_t link;	     /* cable_shm: which of its connections */
};

struct cable;
typedef void cable_sink(void *arg, struct frame *frame);

struct cable_ops {
	/* What is there goes to the sink. Returns 0 if nothing was. */
	int (*take)(struct cable *c, cable_sink *sink, void *arg);
	/* To the side that it did not come from; shown by flush. */
	void (*give)(struct cable *c, const struct frame *frame);
	void (*flush)(struct cable *c);
	/* Make the checksum right again, where there is one. */
	void (*mend)(struct frame *frame);
	/* End what stands; workers may connect again. NULL: nothing does.
	 * Returns how many connections. */
	int (*cut)(struct cable *c);
	/* Before sleeping on the fds; 1: do not. */
	int (*arm)(struct cable *c);
	void (*disarm)(struct cable *c);
	void (*destroy)(struct cable *c);
};

struct cable {
	const struct cable_ops *ops;
	int fds[SIDES];
};

/*
 * Between the worker names[LEFT] of dirs[LEFT] and names[RIGHT] of
 * dirs[RIGHT]: in either folder the cable is called as the other worker.
 */
struct cable *cable_shm_create(const char *const dirs[SIDES],
			       const char *const names[SIDES]);
/* Between two network devices. The packets are RoCEv2 over IPv4. */
struct cable *cable_net_create(const char *const devices[SIDES]);
/*
 * Between two virtual machines, whose Ethernet frames are UDP datagrams on
 * 127.0.0.1: to ports[side][0] from the machine at ports[side][1].
 */
struct cable *cable_vms_create(const char *const ports[SIDES][2]);

/* Print to stderr and exit 1. */
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif

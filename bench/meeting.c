#include "meeting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "port/shm/port_shm.h"

static const char *const names[2] = { "a", "b" };

const char *meeting_open(struct meeting *m, struct pair *p)
{
	struct srdma_port *host, *wire;

	strcpy(m->dir, "/tmp/srdma-bench-XXXXXX");
	if (!mkdtemp(m->dir))
		return "cannot create a directory in /tmp";
	for (int i = 0; i < 2; i++) {
		if (srdma_port_shm_create_host(&host, NULL) ||
		    srdma_port_shm_create_wire(&wire, m->dir, names[i], 0,
					       NULL))
			return "cannot create shared-memory ports";
		pair_open_relay(p, i, host, wire);
	}
	return NULL;
}

const char *meeting_end(const struct meeting *m)
{
	char path[64];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s.sock", m->dir, names[i]);
		if (unlink(path))
			return "the socket of a wire port is missing";
	}
	return rmdir(m->dir) ? "cannot remove the directory of the wires"
			     : NULL;
}

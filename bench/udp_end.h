/*
 * The ends of the rungs over UDP. An end may be in a network namespace of its
 * own; then the datagrams pass the link between the namespaces.
 */
#ifndef BENCH_UDP_END_H
#define BENCH_UDP_END_H

#include "base/name.h"

struct end {
	char netns
		[SRDMA_NAME_LEN]; /* name in /run/netns; "": the present one */
	char four[SRDMA_NAME_LEN], six[SRDMA_NAME_LEN]; /* addresses */
};

/* Parses NETNS,IPV4,IPV6. Returns 1, or 0 if the text is not of this form. */
int end_read(struct end *end, const char *text);

/*
 * The sockets that this thread opens between enter and leave are those of the
 * end. A namespace that cannot be entered exits the program.
 */
void end_enter(const struct end *end);
void end_leave(const struct end *end);

#endif

/*
 * Memory of the program that the worker maps (docs/run.md 4.2): when a region is
 * registered, its pages are moved into a memfd, which takes their place in the
 * program. Only pages that nothing else may write meanwhile are moved. One table
 * per process, because regions of several contexts may overlap.
 */
#ifndef VERBS_MAP_H
#define VERBS_MAP_H

#include <stddef.h>
#include <stdint.h>

struct verbs_map;

/* The memory of a region, from verbs_map_enter() to verbs_map_leave(). */
struct verbs_range {
	struct verbs_range *next;
	char *addr;
	size_t length;
	struct verbs_map *map; /* NULL: it is in no memfd */
};

/* Enters the memory in the table. may_move: 1: its pages may be moved into a memfd. If
 * they cannot be, range->map is NULL, and the memory is as it was. */
void verbs_map_enter(struct verbs_range *range, void *addr, size_t length,
		     int may_move);
/* The region is deregistered. Pages that no other region has in a memfd are moved
 * back, unless something may write them meanwhile. */
void verbs_map_leave(struct verbs_range *range);
/* The memfd of the range, and where the range begins in it; -1: it has none. */
int verbs_map_fd(const struct verbs_range *range, uint64_t *offset);

#endif

/* The fields of a round-trip time, written by rtt.c only. */
#ifndef SRDMA_PATH_RTT_IMPL_H
#define SRDMA_PATH_RTT_IMPL_H

#include "path/rtt.h"

struct srdma_rtt {
	uint64_t srtt, var; /* srtt 0: nothing measured yet */
	uint64_t sent;	    /* when the last measured packet left */
	uint64_t pn;	    /* its number; 0: acknowledged or given up */
	uint32_t doublings[SRDMA_RTT_TIMERS];
};

#endif

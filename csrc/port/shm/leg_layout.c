#include "port/shm/leg_layout.h"

#include "port/shm/ring.h"
#include "port/shm/shm.h"
#include "wire/wire.h"

size_t srdma_leg_layout_records_at(uint32_t ring)
{
	return srdma_shm_round(srdma_ring_bytes(ring, SRDMA_DESC_SLOT));
}

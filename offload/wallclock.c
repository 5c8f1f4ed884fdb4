#include "wallclock.h"

uint32_t wallclock_seconds(int64_t seconds)
{
	return seconds >= WALLCLOCK_LEAST && seconds < UINT32_MAX
		       ? (uint32_t)seconds
		       : UINT32_MAX;
}

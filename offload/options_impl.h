/* Parts of options.h that its files share. */
#ifndef OPTIONS_IMPL_H
#define OPTIONS_IMPL_H

#include "options.h"

/* Writes o->error. Returns OPTIONS_WRONG. */
enum options_result options_wrong(struct options *o, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Checks that --host-dev and --wire-dev have a known form, and that the options
 * which go with one kind of device are not given with another one.
 */
enum options_result options_devices_check(struct options *o);

#endif

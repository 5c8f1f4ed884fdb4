/* The links of a proxy to the worker, from the listening socket to the end. */
#ifndef CONTROL_SERVER_H
#define CONTROL_SERVER_H

#include "control/settings.h"

/*
 * Serves links until SIGTERM or SIGINT. Returns 0, or -errno if it cannot start,
 * which is logged.
 */
int server_run(const struct settings *s);

#endif

/* Acts of a fake agent as a proxy, or as the agent of another user: it passes
 * connections to a fake worker (docs/agent.md 9). */
#ifndef SRDMA_TESTS_FAKE_PROXY_H
#define SRDMA_TESTS_FAKE_PROXY_H

/* Path of the worker's control socket. */
extern const char *fake_proxy_worker;

/* A connection to the worker. */
int fake_proxy_connect(void);

/* Reports `opened` as a proxy does, with a connection to the worker. */
void fake_proxy_pass(int fd);
/* The same as the agent of a worker on this computer. */
void fake_proxy_pass_here(int fd);
/* The same as the agent of a worker on another computer. */
void fake_proxy_pass_lasting(int fd);

#endif

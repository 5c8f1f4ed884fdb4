/* A descriptor that programs wait on for the events of a queue: an eventfd that counts
 * them. A read takes one. */
#ifndef RDMACM_EVENT_FD_H
#define RDMACM_EVENT_FD_H

/* Close-on-exec; a read waits unless the program sets O_NONBLOCK. -1, and errno. */
int cm_event_fd_open(void);

/* An event was put into the queue. Without effect if the program has closed the
 * descriptor. */
void cm_event_fd_add(int fd);

/* An event was taken out of the queue that no read of the program has taken, or will
 * take: the descriptor is not readable for it. Does not wait: another thread may have read
 * the count, which finds the queue empty and must read again. So it is also before Linux
 * 5.8, where seccomp does not permit preadv2(2), and where the program has closed the
 * descriptor: the count stays. */
void cm_event_fd_take_back(int fd);

#endif
